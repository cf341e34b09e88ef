"""REL rules: releases that cannot work together."""
