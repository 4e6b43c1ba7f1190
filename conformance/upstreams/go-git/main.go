// Serves the repositories of a folder by go-git: FOLDER GIT_PORT HTTP_PORT. Version 5 speaks git://, version 6 HTTP.
package main

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-git/go-billy/v6/osfs"
	"github.com/go-git/go-git/v5/plumbing/transport/file"
	"github.com/go-git/go-git/v6/backend"
	"github.com/go-git/go-git/v6/plumbing/transport"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Version 5 serves over standard input and output only, so each connection gets a process of its own, as from inetd.
func serve(connection net.Conn, folder string) {
	defer connection.Close()
	reader := bufio.NewReader(connection)
	length := make([]byte, 4)
	if _, err := io.ReadFull(reader, length); err != nil {
		return
	}
	size, err := strconv.ParseInt(string(length), 16, 32)
	if err != nil || size < 5 {
		return
	}
	request := make([]byte, size-4)
	if _, err := io.ReadFull(reader, request); err != nil {
		return
	}
	path, found := strings.CutPrefix(strings.SplitN(string(request), "\x00", 2)[0], "git-upload-pack ")
	if !found {
		return
	}
	command := exec.Command(os.Args[0], filepath.Join(folder, filepath.Clean("/"+path)))
	command.Stdout, command.Stderr = connection, os.Stderr
	input, err := command.StdinPipe()
	must(err)
	must(command.Start())
	go func() {
		io.Copy(input, reader)
		input.Close()
	}()
	command.Wait()
}

func main() {
	if len(os.Args) == 2 {
		must(file.ServeUploadPack(os.Args[1]))
		return
	}
	folder := os.Args[1]
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[2])
	must(err)
	go func() {
		must(http.ListenAndServe("127.0.0.1:"+os.Args[3], backend.New(transport.NewFilesystemLoader(osfs.New(folder), false))))
	}()
	for {
		connection, err := listener.Accept()
		must(err)
		go serve(connection, folder)
	}
}
