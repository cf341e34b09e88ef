"""Entry point of `python -m cfglint_train`."""

from cfglint_train.front.process import main

if __name__ == "__main__":
    main()
