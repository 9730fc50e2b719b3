"""Python functions on the site's nodes, as `concurrent.futures` has them."""

import headway


def power(base: float, exponent: int) -> float:
    """What each run computes."""
    return base**exponent


if __name__ == "__main__":
    with headway.Executor(resources={"cpus": 0.5}) as executor:
        print(list(executor.map(power, [2.0, 3.0], [10, 3])))
