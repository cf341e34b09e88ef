"""Static readers of the frameworks' definitions: releases and vendored copies as tables of keys."""
