"""Stage `report`: all measurements on one page."""
