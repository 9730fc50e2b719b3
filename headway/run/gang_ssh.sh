#!/bin/sh
# In the place of ssh: runs a command in the container of the part of this gang that is at HOST.
#
#   ssh [OPTIONS] HOST [OPTIONS] COMMAND…
#
# headway passes it on by its ledger, so there is no server, no key and no port. Its exit status
# is passed back; its output is in the log of that part. What ssh is told of keys is left out.

host=
while [ $# -gt 0 ]; do
    case $1 in
    -[BbcDEeFIiJLlmOoPpQRSWw]) shift 2 ;;
    -*) shift ;;
    *)
        [ "$host" ] && break
        host=$1
        shift
        ;;
    esac
done
host=${host##*@} # it is the user of that part in any case
folder=$(cd "$(dirname "$0")/.." && pwd)
part=$(mktemp "$HEADWAY_GANG_ASKS/XXXXXXXXXX") || exit 255
name=${part##*/}
{
    printf '%s\n' "$host"
    printf '%s' "$*"
} >"$part" && mv "$part" "$part.ask" || exit 255
while [ ! -f "$folder/$name.exit" ]; do
    sleep 0.1 2>/dev/null || sleep 1
done
[ ! -f "$folder/$name.why" ] || echo "ssh: $host: $(cat "$folder/$name.why")" >&2
exit "$(cat "$folder/$name.exit")"
