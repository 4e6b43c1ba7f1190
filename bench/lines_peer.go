// The least that a server of lines must do, in Go: a goroutine a connection reads lines, and what came is appended to a
// file and synced 20 times a second. Usage: lines_peer SOCKET FILE
package main

import (
	"bufio"
	"net"
	"os"
	"sync"
	"time"
)

func main() {
	file, err := os.OpenFile(os.Args[2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		panic(err)
	}
	var one sync.Mutex
	var filling, spare []byte
	go func() {
		for {
			time.Sleep(50 * time.Millisecond)
			one.Lock()
			filling, spare = spare[:0], filling
			one.Unlock()
			if len(spare) > 0 {
				if _, err := file.Write(spare); err != nil || file.Sync() != nil {
					panic("cannot write")
				}
			}
		}
	}()
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer connection.Close()
			reader := bufio.NewReaderSize(connection, 1024)
			for {
				line, err := reader.ReadSlice('\n')
				if err != nil {
					return
				}
				one.Lock()
				filling = append(filling, line...)
				one.Unlock()
			}
		}()
	}
}
