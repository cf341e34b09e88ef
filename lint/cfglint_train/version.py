"""The version of cfglint as a constant."""

import cfglint_train

VERSION = cfglint_train.__version__
