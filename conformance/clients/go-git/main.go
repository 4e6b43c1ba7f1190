// Clones, shallow clones and fetches by go-git: clone|shallow|fetch URL FOLDER. Prints the id of the remote's main branch.
package main

import (
	"fmt"
	"os"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	what, url, target := os.Args[1], os.Args[2], os.Args[3]
	if what == "fetch" {
		repo, err := git.PlainOpen(target)
		must(err)
		must(repo.Fetch(&git.FetchOptions{RefSpecs: []config.RefSpec{"+refs/heads/*:refs/remotes/origin/*"}}))
		ref, err := repo.Reference(plumbing.NewRemoteReferenceName("origin", "main"), true)
		must(err)
		fmt.Println(ref.Hash())
		return
	}
	options := git.CloneOptions{URL: url}
	if what == "shallow" {
		options.Depth = 1
	}
	repo, err := git.PlainClone(target, true, &options)
	must(err)
	head, err := repo.Head()
	must(err)
	fmt.Println(head.Hash())
}
