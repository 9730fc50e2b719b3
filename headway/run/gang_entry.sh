# Waits until headway has said where all parts of the gang are, then becomes the program.
#
#   /bin/sh -c "$(cat gang_entry.sh)" headway FOLDER ASKS PROGRAM ARGUMENTS…
#
# FOLDER, which is headway's, gets `go`, which sets the program's variables. Where the program
# of rank 0 starts all others, go sets `serves` in the other parts: these run what they are asked
# for, each FOLDER/NUMBER.run once, and leave its exit status in ASKS/NUMBER.done, with `oom` behind
# it where memory ran out here: what was killed may be a child of a launcher that says nothing of it.
# POSIX sh, since an image may have nothing more.

folder=$1 asks=$2 serves=
shift 2

nap() {
    sleep 0.1 2>/dev/null || sleep 1
}

# How many processes of this container the kernel has killed at its memory limit.
kills() {
    for events in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        while read -r what times; do
            [ "$what" = oom_kill ] && echo "$times"
        done <"$events"
    done 2>/dev/null
}

while [ ! -f "$folder/go" ]; do nap; done
. "$folder/go"
[ "$serves" ] || exec "$@"

# What it sends to all it gets itself, too. Its end would be the end of all: it waits for theirs.
trap 'trap "" TERM INT; kill 0; wait; exit 0' TERM INT
before=$(kills)
while :; do
    for ask in "$folder"/*.run; do
        number=${ask##*/}
        number=${number%.run}
        [ -f "$ask" ] && [ ! -e "$asks/$number.began" ] || continue
        : >"$asks/$number.began"
        (
            trap : TERM INT # it ends when what it runs has ended
            /bin/sh -c "$(cat "$ask")"
            code=$?
            [ "$(kills)" = "$before" ] || code="$code oom"
            echo "$code" >"$asks/$number.part" && mv "$asks/$number.part" "$asks/$number.done"
        ) &
    done
    nap
done
