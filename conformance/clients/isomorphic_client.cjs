// clone|shallow|fetch URL FOLDER, by isomorphic-git. Prints the id of the remote's main branch.
const fs = require("fs");
const git = require("isomorphic-git");
const http = require("isomorphic-git/http/node");

const [what, url, dir] = process.argv.slice(2);

async function main() {
  if (what === "fetch") {
    const fetched = await git.fetch({ fs, http, dir, remote: "origin", tags: true });
    console.log(fetched.fetchHead);
  } else {
    const only = what === "shallow" ? { depth: 1, singleBranch: true } : {};
    await git.clone({ fs, http, dir, url, ...only });
    console.log(await git.resolveRef({ fs, dir, ref: "refs/heads/main" }));
  }
}

main().catch((error) => {
  console.error(error.stack);
  process.exit(1);
});
