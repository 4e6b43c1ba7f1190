// The least that a receiver of webhooks must do, in Go: check the signature, write a line to a file, sync it, and
// answer. Usage: webhook_peer PORT FILE SECRET
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

type push struct {
	Ref        string
	After      string
	Repository struct {
		CloneURL string `json:"clone_url"`
	}
}

func main() {
	file, err := os.OpenFile(os.Args[2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	var one sync.Mutex
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 26<<20))
		if err != nil {
			return
		}
		sent, _ := hex.DecodeString(strings.TrimPrefix(r.Header.Get("X-Hub-Signature-256"), "sha256="))
		mac := hmac.New(sha256.New, []byte(os.Args[3]))
		mac.Write(body)
		var said push
		if !hmac.Equal(mac.Sum(nil), sent) || json.Unmarshal(body, &said) != nil {
			w.WriteHeader(401)
			return
		}
		line, _ := json.Marshal(said)
		one.Lock()
		defer one.Unlock()
		if _, err := file.Write(append(line, '\n')); err != nil || file.Sync() != nil {
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(202)
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
