# Waits until headway has said where all parts of the gang are, then becomes the program.
#
#   /bin/sh -c "$(cat gang_entry.sh)" headway FOLDER PROGRAM ARGUMENTS…
#
# FOLDER gets `go`, which sets the program's variables. POSIX sh, since an image may have
# nothing more.

folder=$1
shift
while [ ! -f "$folder/go" ]; do
    sleep 0.1 2>/dev/null || sleep 1
done
. "$folder/go"
exec "$@"
