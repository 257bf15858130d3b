// Command rancher-backend answers as Rancher does behind an ingress, so that balancers can be tried without a cluster.
//
// What decides is Rancher's own code: the redirect of plain http and the paths exempt from it
// (github.com/rancher/dynamiclistener, HTTPRedirect) and the agents' tunnel (github.com/rancher/remotedialer, which asks
// for authorization before it looks at the upgrade). The handler in front of both, which refuses a browser's WebSocket of
// another origin, is part of Rancher's main module (rancher/rancher, pkg/websocket/handler.go) and is written anew here, as
// are the few public paths and the links of its API (rancher/norman, urlbuilder/url.go).
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

	"github.com/gorilla/websocket"
	"github.com/rancher/dynamiclistener"
	"github.com/rancher/remotedialer"
)

type options struct {
	http, cacerts, token, name, root, apiToken string
}

func main() {
	var o options
	flag.StringVar(&o.http, "http", "", "`address` for plain http, which is redirected unless X-Forwarded-Proto says https")
	flag.StringVar(&o.cacerts, "cacerts", "", "`file` served at /cacerts, read at every request; none: an empty answer")
	flag.StringVar(&o.token, "token", "", "agents' `token` that is let in at /v3/connect; none: nobody is")
	flag.StringVar(&o.apiToken, "api-token", "", "a user's `token` for the API; none: nobody's is good")
	flag.StringVar(&o.name, "name", "rancher", "told in the answer to /")
	flag.StringVar(&o.root, "root", "rancher", "what / answers: rancher, slow (a byte a second), huge (4 MB), redirects (without end)")
	flag.Parse()
	if flag.NArg() > 0 || o.http == "" {
		fmt.Fprintln(os.Stderr, "rancher-backend needs -http, and takes no argument beside its flags")
		os.Exit(64)
	}
	log.Fatal(serve(o))
}

func serve(o options) error {
	handler := tell(dynamiclistener.HTTPRedirect(refuseOtherOrigins(routes(o))))
	server := &http.Server{Addr: o.http, Handler: handler, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// tell writes down who asks for what.
func tell(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		log.Printf("asked for %q by %q", req.URL.Path, req.UserAgent())
		next.ServeHTTP(rw, req)
	})
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
	mux.HandleFunc("/v3/settings/cacerts", func(rw http.ResponseWriter, req *http.Request) {
		links := map[string]string{"self": base(req) + "/v3/settings/cacerts"}
		answer(rw, http.StatusOK, map[string]any{"id": "cacerts", "type": "setting", "links": links, "value": string(read(o.cacerts))})
	})
	tunnel := remotedialer.New(o.authorize, remotedialer.DefaultErrorWriter)
	mux.Handle("/v3/connect", tunnel)
	mux.Handle("/v3/connect/register", tunnel)
	mux.HandleFunc("/v3", unauthorized)
	mux.HandleFunc("/v3/", unauthorized)
	mux.HandleFunc("/v1/", unauthorized)
	mux.HandleFunc("/k8s/clusters/local/api/v1/namespaces/default/configmaps", o.watch)
	mux.HandleFunc("/", o.atRoot)
	return mux
}

// watch is a watch of what never changes, as a WebSocket of the local cluster's API server: silent until the client is gone.
func (o options) watch(rw http.ResponseWriter, req *http.Request) {
	if o.apiToken == "" || req.Header.Get("Authorization") != "Bearer "+o.apiToken {
		unauthorized(rw, req)
		return
	}
	if query := req.URL.Query(); query.Get("watch") != "true" || query.Get("fieldSelector") == "" {
		http.Error(rw, "only a watch of one name is known here", http.StatusBadRequest)
		return
	}
	upgrader := websocket.Upgrader{}
	conn, err := upgrader.Upgrade(rw, req, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	// Answers pings meanwhile.
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			return
		}
	}
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
		base := base(req)
		rw.Header().Set("X-API-Schemas", base+"/meta/schemas")
		links := map[string]string{"self": base + "/"}
		answer(rw, http.StatusOK, map[string]any{"type": "collection", "links": links, "resourceType": "apiRoot", "name": o.name})
	}
}

// base is what Rancher takes for its own address, by the headers of the request: it is before every link of its API.
func base(req *http.Request) string {
	first := func(header string) string { return strings.TrimSpace(strings.Split(req.Header.Get(header), ",")[0]) }
	proto := first("X-Forwarded-Proto")
	if proto == "" {
		return "http://" + req.Host
	}
	host, port := first("X-Forwarded-Host"), first("X-Forwarded-Port")
	if host == "" {
		host = req.Host
	}
	// So a port of 80 beside https leaves no trace.
	if port == "" || port == "443" || port == "80" {
		return proto + "://" + host
	}
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
		host = host[:colon]
	}
	return proto + "://" + host + ":" + port
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
	const size = 4_000_000
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
