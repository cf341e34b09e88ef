"""EasyR1 (hiyouga/EasyR1), a fork of verl with dataclasses instead of Hydra's files."""
