package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// alphaManifests are pods with fields that are alpha in Kubernetes: of volumes, and of probes
// that ask servers on this machine's loopback.
func alphaManifests(e *env, h2c, secure int) (files, probes string) {
	files = replaced(e, e.podOf("files", `{ for f in disk mem conf conf/own; do echo $f: $(stat -L -c '%a %u:%g' /$f); done; echo keepalive: $(cat /proc/sys/net/ipv4/tcp_keepalive_time); } > /out/files.tmp; mv /out/files.tmp /out/files; ${REST}`,
		"securityContext: {fsGroup: 2000}"),
		"volumeMounts: [{name: out, mountPath: /out}]",
		"volumeMounts: [{name: out, mountPath: /out}, {name: disk, mountPath: /disk}, {name: mem, mountPath: /mem}, {name: conf, mountPath: /conf}]") + `  - name: disk
    emptyDir: {mode: 0o1700}
  - name: mem
    emptyDir: {medium: Memory, mode: 0o700}
  - name: conf
    projected:
      defaultUser: 1001
      defaultMode: 0o400
      sources:
      - downwardAPI: {items: [{path: own, user: 1002, fieldRef: {fieldPath: metadata.name}}, {path: name, fieldRef: {fieldPath: metadata.name}}]}
`
	how := ", periodSeconds: 1, timeoutSeconds: 5, failureThreshold: "
	probes = withFields(e.podOf("probes", ": > /out/probes; ${REST}", "hostNetwork: true"),
		fmt.Sprintf("startupProbe: {httpGet: {port: %d, path: /h2c, protocol: HTTP2}%s60}", h2c, how),
		fmt.Sprintf("readinessProbe: {grpc: {port: %d, mode: TLS}%s1}", secure, how))
	return files, probes
}

// TestAlphaFieldsAreHonouredWhereTheirGatesAreOn, and refused by name where they are off.
func TestAlphaFieldsAreHonouredWhereTheirGatesAreOn(t *testing.T) {
	e := prepare(t)
	protocols := make(chan string, 8)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case protocols <- r.Proto + " " + r.URL.Path:
		default:
		}
	}))
	web.Config.Protocols = new(http.Protocols)
	web.Config.Protocols.SetUnencryptedHTTP2(true)
	web.Start()
	defer web.Close()
	secure := secureHealth(t)
	files, probes := alphaManifests(e, web.Listener.Addr().(*net.TCPAddr).Port, secure)

	e.start()
	e.write("files.yaml", files)
	e.problem("files.yaml", "spec.volumes[1].emptyDir.mode", "switch on the feature gate EmptyDirVolumeMode")
	e.write("probes.yaml", probes)
	e.problem("probes.yaml", "startupProbe.httpGet.protocol", "switch on the feature gate H2CContainerProbe")
	e.stop()

	e.podd.Config["featureGates"] = map[string]bool{
		"AtomicWriteVolumeUserFields": true, "DefaultPodSysctls": true, "EmptyDirVolumeMode": true, "GRPCContainerProbeTLS": true, "H2CContainerProbe": true,
	}
	e.podd.Config["defaultPodSysctls"] = map[string]string{"net/ipv4/tcp_keepalive_time": "77"}
	e.start()
	e.expect("files", e.facts("files"), map[string]string{
		"disk": "3770 0:2000", "mem": "2770 0:2000", "conf/own": "440 1002:2000", "keepalive": "77",
	})
	e.ready("probes")
	if got := <-protocols; got != "HTTP/2.0 /h2c" {
		t.Errorf("the startup probe spoke %q", got)
	}
}

// secureHealth is the port of a healthy gRPC server with a certificate of its own.
func secureHealth(t *testing.T) int {
	t.Helper()
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	certificates.Close()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: certificates.TLS.Certificates})))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().(*net.TCPAddr).Port
}
