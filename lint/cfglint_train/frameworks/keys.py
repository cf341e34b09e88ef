"""What a framework makes of the keys of its files: all that the KEY rules, `migrate` and the choice of releases ask.

`Keys` is right for a framework that reads one mapping and does with each key what its vocabulary says. A framework that
does otherwise has a subclass in its folder, which overrides what differs of one of the interfaces; one without a
vocabulary has no keys, and none of them is ever reported.
"""

from __future__ import annotations

from cfglint_train.frameworks.flag_parser import FlagParser, LauncherOption
from cfglint_train.frameworks.setting_lookup import SettingLookup
from cfglint_train.frameworks.user_programs import CallArgument, CallParameters, UnparsedOption, UserPrograms
from cfglint_train.frameworks.value_parser import ValueParser
from cfglint_train.frameworks.vocabulary_access import KeyRewrite, OutdatedConfig, VocabularyAccess

__all__ = ["CallArgument", "CallParameters", "KeyRewrite", "Keys", "LauncherOption", "OutdatedConfig", "UnparsedOption"]


class Keys(VocabularyAccess, ValueParser, SettingLookup, FlagParser, UserPrograms):
    """The keys of one framework, by all of its interfaces."""
