"""Training programs that the demo and the tests run: ordinary scripts, no headway in them."""
