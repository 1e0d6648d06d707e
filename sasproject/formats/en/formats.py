"""The one format of times, for readers of this language."""

from sasproject.formats import DATETIME_FORMAT as DATETIME_FORMAT
