"""Makes the block by which people are told of ends, by whatever Apprise knows."""

import os
import sys

from headway.leader.notification import HeadwayNotification

name = sys.argv[1]  # such as: vision; the address has secrets, and so is no argument
HeadwayNotification(url=os.environ["APPRISE_URL"]).save(name, overwrite=True)
print(
    "name it in headway-line/site:", {"teams": {name: {"notify": [f"headway-notification/{name}"]}}}
)
