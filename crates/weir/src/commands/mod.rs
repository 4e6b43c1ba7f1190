//! The subcommands.

mod about;
mod accounts;
mod adopt;
mod check;
mod clone;
mod crawl;
mod daemon;
mod errors;
mod events;
mod export;
mod hooks;
mod http_backend;
mod import;
mod inspect;
mod maintain;
mod manifest;
mod metadata;
mod migrate;
mod mine;
mod mirror;
mod mount;
mod purge;
mod query;
mod register;
mod serve;
mod settings;
mod share;
mod shell;
mod show;
mod status;
mod upload_pack;
mod workspace;

use std::process::ExitCode;

pub(crate) use daemon::log_destination;
use weir_arguments::{Cli, Command, ConfigCommand};

use crate::error::Result;
use crate::pool::open_pool;

/// Runs the subcommand.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    let global = &cli.global;
    let open = || open_pool(global);
    let done = |result: Result<()>| result.map(|()| ExitCode::SUCCESS);
    match cli.command {
        Command::Init { path, catalog } => done(register::init(global, path, catalog.as_deref())),
        Command::Migrate { destination } => done(migrate::migrate(&open()?, global, &destination)),
        Command::Completions { shell } => done(about::completions(shell)),
        Command::Man { folder } => done(about::man(&folder)),
        Command::Config(ConfigCommand::Check { urls }) => about::config_check(global, &urls),
        Command::Config(ConfigCommand::Show) => done(about::config_show(&open()?, global)),
        Command::Add(args) => register::add(&mut open()?, global, args),
        Command::Crawl(args) => crawl::crawl(open()?, global, &args),
        Command::Metadata(command) => metadata::metadata(open()?, global, command),
        Command::Events(command) => events::events(global, command),
        Command::Hooks(command) => hooks::hooks(&open()?, global, &command),
        Command::Mine(args) => mine::mine(global, &args),
        Command::Query(args) => query::query(global, &args),
        Command::Mount(args) => done(mount::mount(global, &args)),
        Command::Workspace(command) => workspace::workspace(global, &command),
        Command::Import(args) => import::import(open()?, global, &args),
        Command::Mirror(args) => mirror::mirror(open()?, global, &args),
        Command::Serve(args) => done(serve::serve(open()?, global, args)),
        Command::Clone(args) => done(clone::clone(global, &args)),
        Command::Daemon(args) => done(daemon::daemon(global, *args)),
        Command::UploadPack(args) => upload_pack::upload_pack(&args),
        Command::HttpBackend => http_backend::http_backend(),
        Command::Shell { command, known_as } => shell::shell(global, command, known_as),
        Command::Check { offline, max_count } => check::check(global, offline, max_count),
        Command::Status => done(status::status(&open()?, global)),
        Command::Due { max_count } => done(status::due(&open()?, global, max_count)),
        Command::Errors(args) => done(errors::errors(&open()?, global, &args)),
        Command::Pause(list) => done(register::pause(&mut open()?, global, &list.repos, true)),
        Command::Resume(list) => done(register::pause(&mut open()?, global, &list.repos, false)),
        Command::Accounts { login, max_count } => {
            done(accounts::accounts(&open()?, global, login.as_deref(), max_count))
        }
        Command::Set(args) => done(settings::set(&mut open()?, global, args)),
        Command::Hint { repos, from } => settings::hint(&mut open()?, global, repos, from.as_deref()),
        Command::Visits { repo, max_count } => done(inspect::visits(&open()?, global, &repo, max_count)),
        Command::Ls(args) => done(inspect::ls(&open()?, global, &args)),
        Command::Show { repo } => done(show::show(&open()?, global, &repo)),
        Command::Log { repo, max_count } => done(inspect::log(&open()?, global, &repo, max_count)),
        Command::Du(selection) => done(inspect::du(&open()?, global, &selection)),
        Command::Fsck { selection, repair } => maintain::fsck(&mut open()?, global, &selection, repair),
        Command::Adopt { dry_run } => adopt::adopt(&mut open()?, global, dry_run),
        Command::Compact(selection) => maintain::compact(&mut open()?, global, &selection),
        Command::Share { selection, reference, dry_run } => {
            share::share(&mut open()?, global, &selection, reference.as_deref(), dry_run)
        }
        Command::Dissociate { repos, reference } => {
            share::dissociate(&mut open()?, global, &repos, reference.as_deref())
        }
        Command::Restore { state, name } => done(maintain::restore(&mut open()?, global, &state, name)),
        Command::Export { repo, target, format } => {
            done(export::export(&open()?, global, &repo, &target, format))
        }
        Command::Manifest { file, selection, known_as } => {
            done(manifest::manifest(&open()?, global, &file, &selection, known_as))
        }
        Command::Rename { repo, new } => done(register::rename(&mut open()?, global, &repo, &new)),
        Command::Rm { repos, delete } => done(register::rm(&mut open()?, global, &repos, delete)),
        Command::Purge(args) => done(purge::purge(&mut open()?, global, &args)),
        Command::Cat { repo, object } => done(inspect::cat(&open()?, &repo, &object)),
        Command::LsTree { repo, tree, recursive } => {
            done(inspect::ls_tree(&open()?, global, &repo, &tree, recursive))
        }
    }
}
