"""XFL rules: settings in two files that contradict each other."""
