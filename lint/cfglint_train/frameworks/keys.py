"""Key handling of a framework: the interface that the KEY rules, `migrate` and release resolution use.

`Keys` itself suits a framework that reads one mapping and treats each key as its vocabulary states. Other frameworks
override the methods that differ, in a subclass in their own folder. A framework without a vocabulary has no `Keys`, and
cfglint reports none of its keys.
"""

from __future__ import annotations

from cfglint_train.frameworks.flag_parser import FlagParser, LauncherOption
from cfglint_train.frameworks.setting_lookup import SettingLookup
from cfglint_train.frameworks.user_programs import CallArgument, CallParameters, UnparsedOption, UserPrograms
from cfglint_train.frameworks.value_parser import ValueParser
from cfglint_train.frameworks.vocabulary_access import KeyRewrite, OutdatedConfig, VocabularyAccess

__all__ = ["CallArgument", "CallParameters", "KeyRewrite", "Keys", "LauncherOption", "OutdatedConfig", "UnparsedOption"]


class Keys(VocabularyAccess, ValueParser, SettingLookup, FlagParser, UserPrograms):
    """Key handling of one framework, combined from its parts."""
