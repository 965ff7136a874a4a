from grpo_core.display.libraries import import_bars_quietly

import_bars_quietly()  # before any module of this package imports a library that uses them
