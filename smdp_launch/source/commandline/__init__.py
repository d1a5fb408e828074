"""The command line that a script accepts: the options that argparse, click or absl declare."""
