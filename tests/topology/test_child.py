import sys
import time

from advisor.topology.child import ask, ask_python


def test_output_of_a_command_in_the_c_locale():
    assert ask([sys.executable, "-c", "import os; print(os.environ['LC_ALL'])"], 30) == "C\n"


def test_missing_and_failing_commands_are_none():
    assert ask(["/no/such/program"], 30) is None
    assert ask([sys.executable, "-c", "raise SystemExit(3)"], 30) is None


def test_a_hanging_command_is_left_after_the_limit():
    start = time.monotonic()
    assert ask([sys.executable, "-c", "import time; time.sleep(60)"], 0.2) is None
    assert time.monotonic() - start < 30


def test_a_script_does_not_see_its_own_folder_as_modules():
    """advisor/topology/array.py must not hide the standard `array`."""
    assert ask_python("import array, sys; sys.stdout.write(str(hasattr(array, 'typecodes')))", 30) == "True"


def test_output_that_is_no_text_is_none():
    assert ask([sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'\xff\xfe')"], 30) is None
