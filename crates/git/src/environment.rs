//! The environment by which git finds one repository.

/// The variables that describe one repository (`git rev-parse --local-env-vars`). A git that works on another
/// repository must not inherit them: git sets `GIT_DIR` for hooks and aliases, for example. Without
/// `GIT_CONFIG_PARAMETERS` and `GIT_CONFIG_COUNT`, whose settings git hands on to submodules, too
/// (`prepare_submodule_repo_env_no_git_dir` in git's submodule.c).
pub const LOCAL_ENVIRONMENT: [&str; 14] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_OBJECT_DIRECTORY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_REPLACE_REF_BASE",
    "GIT_PREFIX",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_COMMON_DIR",
];
