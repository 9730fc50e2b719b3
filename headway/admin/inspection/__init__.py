"""Does everything agree? What is seen of the site is compared with what it promises."""
