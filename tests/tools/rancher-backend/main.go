// Command rancher-backend answers as Rancher does behind an ingress, so that balancers can be tried without a cluster.
//
// What decides is Rancher's own code: the redirect of plain http and the paths exempt from it
// (github.com/rancher/dynamiclistener, HTTPRedirect) and the agents' tunnel (github.com/rancher/remotedialer, which asks
// for authorization before it looks at the upgrade). The handler in front of both, which refuses a browser's WebSocket of
// another origin, is part of Rancher's main module (rancher/rancher, pkg/websocket/handler.go) and is written anew here, as
// are the few public paths.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/rancher/dynamiclistener"
	"github.com/rancher/remotedialer"
)

type options struct {
	http, https, certificate, key, cacerts, token, name, root string
}

func main() {
	var o options
	flag.StringVar(&o.http, "http", "", "`address` for plain http, which is redirected unless X-Forwarded-Proto says https")
	flag.StringVar(&o.https, "https", "", "`address` for https, as where no ingress stands in front")
	flag.StringVar(&o.certificate, "cert", "", "`file` with the certificate chain for -https, PEM")
	flag.StringVar(&o.key, "key", "", "`file` with its key, PEM")
	flag.StringVar(&o.cacerts, "cacerts", "", "`file` served at /cacerts, read at every request; none: an empty answer")
	flag.StringVar(&o.token, "token", "", "agents' `token` that is let in at /v3/connect; none: nobody is")
	flag.StringVar(&o.name, "name", "rancher", "told in the answer to /")
	flag.StringVar(&o.root, "root", "rancher", "what / answers: rancher, slow (a byte a second), huge (100 MB), redirects (without end)")
	flag.Parse()
	if flag.NArg() > 0 || (o.http == "" && o.https == "") {
		fmt.Fprintln(os.Stderr, "rancher-backend needs -http or -https, and takes no other argument")
		os.Exit(64)
	}
	log.Fatal(serve(o))
}

func serve(o options) error {
	handler := refuseOtherOrigins(routes(o))
	ended := make(chan error)
	if o.http != "" {
		server := &http.Server{Addr: o.http, Handler: dynamiclistener.HTTPRedirect(handler), ReadHeaderTimeout: time.Minute}
		go func() { ended <- server.ListenAndServe() }()
	}
	if o.https != "" {
		server := &http.Server{Addr: o.https, Handler: handler, ReadHeaderTimeout: time.Minute}
		go func() { ended <- server.ListenAndServeTLS(o.certificate, o.key) }()
	}
	return <-ended
}

func routes(o options) http.Handler {
	mux := http.NewServeMux()
	text := func(path, body string) {
		mux.HandleFunc(path, func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(body)) })
	}
	text("/ping", "pong")
	text("/healthz", "ok")
	text("/dashboard/", "<!doctype html><title>Rancher</title>")
	text("/rancherversion", `{"Version":"v2.14.1","GitCommit":"0000000","RancherPrime":"false"}`)
	mux.HandleFunc("/cacerts", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/plain")
		_, _ = rw.Write(read(o.cacerts))
	})
	mux.HandleFunc("/v3/settings/cacerts", func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, http.StatusOK, map[string]string{"id": "cacerts", "type": "setting", "value": string(read(o.cacerts))})
	})
	tunnel := remotedialer.New(o.authorize, remotedialer.DefaultErrorWriter)
	mux.Handle("/v3/connect", tunnel)
	mux.Handle("/v3/connect/register", tunnel)
	mux.HandleFunc("/v3", unauthorized)
	mux.HandleFunc("/v3/", unauthorized)
	mux.HandleFunc("/v1/", unauthorized)
	mux.HandleFunc("/", o.atRoot)
	return mux
}

// authorize knows a token, or says no as Rancher does: nobody is refused by an error who sent none.
func (o options) authorize(req *http.Request) (string, bool, error) {
	switch given := req.Header.Get("X-API-Tunnel-Token"); given {
	case "":
		return "", false, nil
	case o.token:
		return "c-tests", true, nil
	default:
		return "", false, errors.New("cluster not found")
	}
}

func (o options) atRoot(rw http.ResponseWriter, req *http.Request) {
	switch {
	case o.root == "redirects" && (req.URL.Path == "/" || strings.HasPrefix(req.URL.Path, "/step/")):
		next := sha256.Sum256([]byte(req.URL.Path))
		http.Redirect(rw, req, "/step/"+hex.EncodeToString(next[:8]), http.StatusFound)
	case req.URL.Path != "/":
		http.NotFound(rw, req)
	case o.root == "slow":
		drip(rw, req)
	case o.root == "huge":
		flood(rw)
	case strings.Contains(strings.ToLower(req.UserAgent()), "mozilla"):
		http.Redirect(rw, req, "/dashboard/", http.StatusFound)
	default:
		answer(rw, http.StatusOK, map[string]string{"type": "collection", "resourceType": "apiRoot", "name": o.name})
	}
}

// drip sends one byte a second, without end.
func drip(rw http.ResponseWriter, req *http.Request) {
	for req.Context().Err() == nil {
		if _, err := rw.Write([]byte(".")); err != nil {
			return
		}
		_ = http.NewResponseController(rw).Flush()
		time.Sleep(time.Second)
	}
}

func flood(rw http.ResponseWriter) {
	const size = 100_000_000
	rw.Header().Set("Content-Length", fmt.Sprint(size))
	part := make([]byte, 100_000)
	for sent := 0; sent < size; sent += len(part) {
		if _, err := rw.Write(part); err != nil {
			return
		}
	}
}

// refuseOtherOrigins refuses the WebSocket of a browser that shows a page of another host.
func refuseOtherOrigins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		browser := strings.Contains(strings.ToLower(req.UserAgent()), "mozilla")
		if browser && asksToUpgrade(req.Header) && !sameOrigin(req) {
			code := map[string]any{"Code": "PermissionDenied", "Status": http.StatusForbidden}
			answer(rw, http.StatusForbidden, map[string]any{"Code": code, "Message": "origin not allowed", "Cause": nil, "FieldName": ""})
			return
		}
		next.ServeHTTP(rw, req)
	})
}

func asksToUpgrade(header http.Header) bool {
	for _, line := range header["Connection"] {
		for _, option := range strings.Split(line, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "upgrade") {
				return true
			}
		}
	}
	return false
}

func sameOrigin(req *http.Request) bool {
	origins := req.Header["Origin"]
	for _, origin := range origins {
		parsed, err := url.Parse(origin)
		if err != nil || parsed.Host != req.Host {
			continue
		}
		if _, port, err := net.SplitHostPort(req.Host); parsed.Port() == "" || (err == nil && port == parsed.Port()) {
			return true
		}
	}
	return len(origins) == 0
}

func unauthorized(rw http.ResponseWriter, _ *http.Request) {
	body := map[string]any{"type": "error", "baseType": "error", "status": 401, "code": "Unauthorized", "message": "must authenticate"}
	answer(rw, http.StatusUnauthorized, body)
}

func answer(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(body)
}

// read gives a file's bytes as they are: a checksum is over every one of them.
func read(file string) []byte {
	if file == "" {
		return nil
	}
	bytes, err := os.ReadFile(file)
	if err != nil {
		log.Print(err)
	}
	return bytes
}
