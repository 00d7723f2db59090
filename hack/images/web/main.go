// Command web is the server in podd's first pod: one page that says which pod
// answered. It ends at once, with code 0, on SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

var page = template.Must(template.New("page").Parse(`<!doctype html>
<meta charset="utf-8">
<title>{{.Pod}}</title>
<h1>It runs.</h1>
<p>This page comes from the pod <b>{{.Pod}}</b>{{with .Namespace}} in namespace <b>{{.}}</b>{{end}},
at address {{.Address}}, up for {{.Up}}.</p>
`))

// pod is the name of the pod that this process is in: POD_NAME where the
// manifest sets it (downward API), the host name otherwise, which is the same.
func pod() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

func handler(started time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		address := "unknown"
		if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			address = a.String()
		}
		up := time.Since(started).Round(time.Second)
		facts := map[string]any{"Pod": pod(), "Namespace": os.Getenv("POD_NAMESPACE"), "Address": address, "Up": up}
		if !strings.Contains(r.Header.Get("Accept"), "text/html") { // curl, a script
			fmt.Fprintf(w, "It runs. Pod %s at %s, up for %s.\n", pod(), address, up)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := page.Execute(w, facts); err != nil {
			fmt.Fprintln(os.Stderr, "write page:", err)
		}
	})
	return mux
}

func run() error {
	port := flag.Int("port", 8080, "TCP port to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	server := &http.Server{Addr: fmt.Sprintf(":%d", *port), Handler: handler(time.Now()), ReadHeaderTimeout: 10 * time.Second}
	// A stop signal closes at once: there is nothing here worth a grace period.
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Printf("pod %s listens on port %d\n", pod(), *port)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}
