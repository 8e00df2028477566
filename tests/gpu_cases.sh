#!/bin/sh
# gpu_cases.sh LEAST COMMAND...: runs it where at least so many GPUs are seen; elsewhere exit 77, which ctest shows as skipped.
least=$1; shift
seen=$(ls -d /dev/nvidia[0-9]* 2>/dev/null | wc -l)
if [ "$seen" -lt "$least" ]; then echo "skipped: $seen GPUs are seen, $least needed"; exit 77; fi
exec "$@"
