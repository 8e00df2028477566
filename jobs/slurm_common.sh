# The common part of the SLURM scripts: sourced by them, never submitted. Says how terrace is started, what happens on
# a signal, and when a job goes back into the queue. Everything can be set in the environment of sbatch:
#   TERRACE               the program (default: terrace in PATH)
#   TERRACE_MODULES       environment modules to load, as "gcc openmpi hdf5-parallel cuda nccl"; a file modules.sh
#                         beside this one is sourced first, for clusters that need more than a list
#   TERRACE_IMAGE         an Apptainer image built from terrace.def; terrace then runs inside it
#   TERRACE_MPI           srun's --mpi (default: pmix; `srun --mpi=list` prints what a cluster has)
#   TERRACE_CPU_BIND      srun's --cpu-bind (default: none, as terrace binds a rank near its GPU itself)
#   TERRACE_LAUNCHER      replaces srun and its options, as "mpirun --bind-to none"; submit with --signal=B:USR2@300 then
#   TERRACE_CHECKPOINT    checkpoint file (default: terrace-JOB.checkpoint.h5 where sbatch was called)
#   TERRACE_CHECKPOINT_EVERY  its interval (default: 10m)
#   TERRACE_REQUEUES      how often a job may go back into the queue (default: 20)
#   TERRACE_REQUEUE_ON    exit codes after which it does (default: 75, stopped on a signal with a checkpoint written)

# The number of the last task of a job array is that of the whole array: tasks are named by both numbers.
terrace_name=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
terrace_name=${terrace_name:-$SLURM_JOB_ID}

terrace_say() { echo "$(date '+%F %T') job $terrace_name: $*"; }

terrace_environment() {
  if [ -f "$terrace_jobs/modules.sh" ]; then source "$terrace_jobs/modules.sh"; fi
  if [ -n "${TERRACE_MODULES:-}" ]; then module load $TERRACE_MODULES; fi
  # SLURM 22.05 and later do not hand sbatch's --cpus-per-task on to srun.
  if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
    export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK TERRACE_THREADS=${TERRACE_THREADS:-$SLURM_CPUS_PER_TASK}
  fi
}

# The launcher and the program, in the array `terrace_start`.
terrace_find() {
  if [ -n "${TERRACE_LAUNCHER:-}" ]; then
    read -ra terrace_start <<<"$TERRACE_LAUNCHER"
  else
    terrace_start=(srun "--mpi=${TERRACE_MPI:-pmix}" "--cpu-bind=${TERRACE_CPU_BIND:-none}")
    # The ranks end together. Where one dies before they have met, the others would wait for it to the time limit.
    export SLURM_WAIT=${SLURM_WAIT:-60}
    # Every rank must see all GPUs of its host: NCCL loses NVLink between GPUs that are hidden from each other.
    if [ -n "${SLURM_JOB_GPUS:-}${SLURM_GPUS_ON_NODE:-}" ]; then terrace_start+=(--gpu-bind=none); fi
  fi
  if [ -n "${TERRACE_IMAGE:-}" ]; then
    terrace_start+=(apptainer exec --nv "$TERRACE_IMAGE" "${TERRACE:-terrace}")
  else
    terrace_start+=("${TERRACE:-terrace}")
  fi
}

terrace_given() {  # terrace_given OPTION ARGUMENTS...: whether OPTION or OPTION=VALUE is among them
  local option=$1 word; shift
  for word in "$@"; do [[ $word == "$option" || $word == "$option="* ]] && return 0; done
  return 1
}

# terrace_job ARGUMENTS...: runs terrace once and ends the script: with terrace's exit code, or by going back into the
# queue. A requeued job keeps its number, finds its checkpoint and goes on from there.
terrace_job() {
  terrace_environment
  terrace_find
  local more=() checkpoint=${TERRACE_CHECKPOINT:-terrace-$terrace_name.checkpoint.h5}
  case ${1:-} in
    "" | -* | generate | convert | verify | bench | info) ;;  # nothing that could be continued
    *)
      terrace_given --report "$@" || more+=(--report "terrace-$terrace_name.json")
      if ! terrace_given --checkpoint "$@"; then
        more+=(--checkpoint "$checkpoint" --checkpoint-every "${TERRACE_CHECKPOINT_EVERY:-10m}")
        if ! terrace_given --restart "$@" && [ -e "$checkpoint" -o -e "$checkpoint.old" ]; then
          more+=(--restart "$checkpoint")
        fi
      fi ;;
  esac

  # SLURM signals the ranks. The shell only has to outlive the signal; mpirun it must pass it on to.
  local stopped=0 launcher=0 code=0
  if [ -n "${TERRACE_LAUNCHER:-}" ]; then trap '[ "$launcher" = 0 ] || kill -USR2 "$launcher" 2>/dev/null' USR2; else trap : USR2; fi
  trap : USR1
  trap 'stopped=1' TERM  # scancel, or the time limit itself
  terrace_say "start $((${SLURM_RESTART_COUNT:-0} + 1)) on $SLURM_JOB_NODELIST: ${terrace_start[*]} $* ${more[*]}"
  "${terrace_start[@]}" "$@" "${more[@]}" &
  launcher=$!
  while :; do  # a trapped signal ends `wait` before the launcher has ended
    code=0
    wait "$launcher" || code=$?
    kill -0 "$launcher" 2>/dev/null || break
  done

  local again=0 known
  for known in ${TERRACE_REQUEUE_ON:-75}; do [ "$code" = "$known" ] && again=1; done
  if [ $again = 0 ]; then
    if [ $code = 0 ] && [ ${#more[@]} -gt 0 ] && [ -z "${TERRACE_CHECKPOINT:-}" ]; then rm -f "$checkpoint" "$checkpoint.old"; fi
    terrace_say "ended with exit code $code"
  elif [ $stopped = 1 ]; then
    terrace_say "exit code $code after SIGTERM: cancelled or out of time, so it is not requeued; to go on: --restart $checkpoint"
  elif [ "${SLURM_RESTART_COUNT:-0}" -ge "${TERRACE_REQUEUES:-20}" ]; then
    terrace_say "exit code $code after ${SLURM_RESTART_COUNT:-0} requeues, the most allowed; to go on: --restart $checkpoint"
  else
    terrace_say "exit code $code: back into the queue"
    trap - TERM
    if scontrol requeue "$terrace_name"; then read -rt 60 <> <(:) || true; fi  # SLURM ends this script in here
    terrace_say "the job could not be requeued; to go on: --restart $checkpoint"
  fi
  exit "$code"
}
