// parcel|chokidar FOLDER: prints "ready", then each path below the folder that changes, as the watcher says it,
// until its input ends. The first watches as VS Code does.
const path = require("path");

const [which, folder] = process.argv.slice(2);
const say = (file) => console.log(path.relative(folder, file));
const ignored = [path.join(folder, ".git")];

async function main() {
  if (which === "parcel") {
    const heard = (error, events) => {
      if (error) throw error;
      events.forEach((event) => say(event.path));
    };
    await require("@parcel/watcher").subscribe(folder, heard, { ignore: ignored });
  } else {
    const watcher = require("chokidar").watch(folder, { ignoreInitial: true, ignored });
    watcher.on("all", (_, file) => say(file));
    await new Promise((ready) => watcher.on("ready", ready));
  }
  console.log("ready");
  process.stdin.on("end", () => process.exit(0)).resume();
}

main().catch((error) => {
  console.error(error.stack);
  process.exit(1);
});
