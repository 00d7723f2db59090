// Command web is the server in podd's first pod: one page that says which pod
// answered. It ends at once, with code 0, on SIGTERM.
//
// For trying out probes it has a health service over HTTP (/healthz) and, with
// -grpc-port, over gRPC. Both are well but while the file of -sick exists.
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

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
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

// health answers as long as the file sick is not there.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	sick string
}

func (h health) well() bool {
	_, err := os.Stat(h.sick)
	return h.sick == "" || err != nil
}

func (h health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if !h.well() {
		http.Error(w, "sick", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// Check is that of grpc.health.v1, for every service.
func (h health) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !h.well() {
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func handler(started time.Time, h health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", h)
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
	rpc := flag.Int("grpc-port", 0, "TCP port for grpc.health.v1; 0 for none")
	sick := flag.String("sick", "", "while this `file` exists, the health services say so")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	server := &http.Server{Addr: fmt.Sprintf(":%d", *port), Handler: handler(time.Now(), health{sick: *sick}), ReadHeaderTimeout: 10 * time.Second}
	// A stop signal closes at once: there is nothing here worth a grace period.
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if *rpc != 0 {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", *rpc))
		if err != nil {
			return err
		}
		g := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(g, health{sick: *sick})
		go func() { _ = g.Serve(l) }() // it ends with the process
	}
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
