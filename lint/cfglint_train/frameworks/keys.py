"""Keys of a framework's files: the interface of the KEY rules, of `migrate` and of release resolution.

`Keys` is right for a framework that reads one mapping and treats each key as its vocabulary states. Other frameworks
have a subclass in their folder that overrides the methods which differ. A framework without a vocabulary has no keys,
and none is ever reported.
"""

from __future__ import annotations

from cfglint_train.frameworks.flag_parser import FlagParser, LauncherOption
from cfglint_train.frameworks.setting_lookup import SettingLookup
from cfglint_train.frameworks.user_programs import CallArgument, CallParameters, UnparsedOption, UserPrograms
from cfglint_train.frameworks.value_parser import ValueParser
from cfglint_train.frameworks.vocabulary_access import KeyRewrite, OutdatedConfig, VocabularyAccess

__all__ = ["CallArgument", "CallParameters", "KeyRewrite", "Keys", "LauncherOption", "OutdatedConfig", "UnparsedOption"]


class Keys(VocabularyAccess, ValueParser, SettingLookup, FlagParser, UserPrograms):
    """The keys of one framework: all of its interfaces."""
