#!/bin/sh
# Works in RUN, which runs: sends FOLDER, does something with it there, fetches what came of it.
set -e
run=$1.headway folder=$2
headway ssh > ssh.config
scp -qrF ssh.config "$folder" "$run":sent
ssh -F ssh.config "$run" 'find sent -type f | wc -l > counted'
scp -qF ssh.config "$run":counted .
cat counted
