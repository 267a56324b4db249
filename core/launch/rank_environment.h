#pragma once

// Which process of how many this one is, as its launcher told it in the environment. Without a
// launcher it is the only one, so that callers need no branch. Any thread, but not while another
// changes the environment.

#include <functional>
#include <optional>
#include <string>

namespace haul::core {

enum class RankSource { kAlone, kTorchrun, kOpenMpi, kMvapich, kMpich, kSlurm };

struct RankEnvironment {
  RankSource source = RankSource::kAlone;
  int rank = 0;
  int world = 1;
  int local_rank = 0;   // among the processes on this machine
  int local_world = 1;  // processes on this machine
  // Where rank 0 listens: MASTER_ADDR and MASTER_PORT where they are set, else the first machine of
  // a Slurm step, else this one; port 29500.
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
};

using Variables = std::function<std::optional<std::string>(const std::string&)>;

// `haul launch` and torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE) come before Open MPI
// (OMPI_COMM_WORLD_*), MVAPICH (MV2_COMM_WORLD_*), MPICH and Intel (PMI_RANK, PMI_SIZE,
// MPI_LOCALRANKID, MPI_LOCALNRANKS) and Slurm's srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS or
// SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE). Throws Error(kUsage) that names the
// variable for a number that cannot be, and for RANK without WORLD_SIZE or the other way round.
RankEnvironment read_rank_environment(const Variables& variables);
RankEnvironment read_rank_environment();

}  // namespace haul::core
