# Runs a program under Nsight Systems so that nothing but its speed tells of it:
# exit code, output and signals are the program's own. Whatever nsys does, the
# program runs: where nsys is missing, or ends before it has started the
# program, the program runs as it is.
#
#   /bin/sh -c "$(cat entry.sh)" headway FOLDER GRACE_S WINDOW_S OFFERED PROGRAM ARGUMENTS…
#
# FOLDER gets nsys's report and words, its subfolder `state` for the time being
# the program's process id and exit code, and what nsys has to put aside.
# GRACE_S is what the program is given between SIGTERM and SIGKILL, WINDOW_S
# how long nsys records. OFFERED may hold an nsys: the node's own, mounted.
# POSIX sh, since an image may have nothing more.

folder=$1 state=$1/state grace_s=$2 window_s=$3 offered=$4
shift 4

find_nsys() {
    command -v nsys && return
    for found in "$offered"/bin/nsys "$offered"/target-linux-x64/nsys "$offered"/nsys \
        /opt/nvidia/nsight-systems*/*/bin/nsys /usr/local/cuda/bin/nsys; do
        if [ -x "$found" ]; then
            printf '%s\n' "$found"
            return
        fi
    done
    return 1
}

rm -rf "$folder" 2>/dev/null
nsys=$(find_nsys) && mkdir -p "$state" 2>/dev/null || exec "$@"

# Between nsys and the program. Output goes past nsys by descriptors 3 and 4;
# the umask, which nsys clears, is set again; SIGINT and SIGQUIT, which sh
# ignores in what it starts in the background, are given back where env can.
inner='
trap : TERM
state=$1 tmp=$2
umask "$3"
shift 3
[ ! -e "$state/stop" ] || exit 143
if [ "$tmp" ]; then export TMPDIR="$tmp"; else unset TMPDIR; fi
if env --default-signal=INT,QUIT true 2>/dev/null; then
    set -- env --default-signal=INT,QUIT "$@"
fi
/bin/sh -c '\''echo $$ >"$0"; exec "$@"'\'' "$state/pid" "$@" 1>&3 2>&4 3>&- 4>&-
code=$?
echo "$code" >"$state/exit.part" && mv "$state/exit.part" "$state/exit"
exit "$code"'

stopped=
trap 'stopped=now' TERM
exec 3>&1 4>&2 >"$folder/nsys.log" 2>&1
# In a session of its own where that is possible: a SIGTERM for this process
# group is not for nsys, and reaches the program once.
TMPDIR="$state" $(command -v setsid) "$nsys" profile --trace=cuda,nvtx,osrt --sample=none \
    --cpuctxsw=none --trace-fork-before-exec=true --wait=primary --kill=none \
    --duration="$window_s" --export=sqlite --force-overwrite=true --output="$folder/report" \
    /bin/sh -c "$inner" headway "$state" "${TMPDIR-}" "$(umask)" "$@" &
profiler=$!

program_runs() {
    [ -s "$state/pid" ] && [ ! -e "$state/exit" ] && kill -0 "$(cat "$state/pid")"
}

pass_on_stop() {
    touch "$state/stop"
    if [ -s "$state/pid" ]; then
        kill -TERM "$(cat "$state/pid")"
    else
        kill -KILL "$profiler" # the program has not begun
    fi
    stopped=passed
}

# After the program's end nsys writes its report: it is given five minutes for
# that, or what is left of the grace time.
report_s=300
while kill -0 "$profiler" || program_runs; do
    [ "$stopped" != now ] || pass_on_stop
    sleep 1 &
    wait $!
    [ -z "$stopped" ] || grace_s=$((grace_s - 1))
    [ -e "$state/exit" ] || continue
    report_s=$((report_s - 1))
    [ "$report_s" -gt 0 ] && [ "$grace_s" -gt 2 ] || break
done

if [ -s "$state/exit" ]; then
    code=$(cat "$state/exit")
    rm -rf "$state"
    exit "$code"
elif [ -s "$state/pid" ]; then
    wait "$profiler"
elif [ "$stopped" ]; then
    exit 143
else
    trap - TERM
    exec "$@" 1>&3 2>&4 3>&- 4>&-
fi
