"""The language server: diagnostics, fixes, hover, completion and the memory budget in editors."""
