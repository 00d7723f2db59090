package podenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

func service(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func clusterPod(namespace string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Annotations: map[string]string{pod.AnnotationSource: string(pod.SourceAPIServer)}}}
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	return p
}

func TestAContainerHasVariablesOfTheServicesOfItsNamespace(t *testing.T) {
	s := &Services{synced: true, all: []*v1.Service{
		service("shop", "front-end", "10.96.0.7", v1.ServicePort{Name: "http-alt", Port: 80}, v1.ServicePort{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP}),
		service("shop", "headless", "None", v1.ServicePort{Port: 1}),
		service("shop", "external", ""),
		service("other", "hidden", "10.96.0.8", v1.ServicePort{Port: 1}),
		service("default", "kubernetes", "fd00::1", v1.ServicePort{Name: "https", Port: 443}),
	}}
	kubernetes := []string{
		"KUBERNETES_SERVICE_HOST=fd00::1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443", "KUBERNETES_PORT=tcp://[fd00::1]:443",
		"KUBERNETES_PORT_443_TCP=tcp://[fd00::1]:443", "KUBERNETES_PORT_443_TCP_PROTO=tcp", "KUBERNETES_PORT_443_TCP_PORT=443", "KUBERNETES_PORT_443_TCP_ADDR=fd00::1",
	}
	frontend := []string{
		"FRONT_END_SERVICE_HOST=10.96.0.7", "FRONT_END_SERVICE_PORT=80", "FRONT_END_SERVICE_PORT_HTTP_ALT=80", "FRONT_END_SERVICE_PORT_DNS=53",
		"FRONT_END_PORT=tcp://10.96.0.7:80", "FRONT_END_PORT_80_TCP=tcp://10.96.0.7:80", "FRONT_END_PORT_80_TCP_PROTO=tcp", "FRONT_END_PORT_80_TCP_PORT=80",
		"FRONT_END_PORT_80_TCP_ADDR=10.96.0.7", "FRONT_END_PORT_53_UDP=udp://10.96.0.7:53", "FRONT_END_PORT_53_UDP_PROTO=udp", "FRONT_END_PORT_53_UDP_PORT=53",
		"FRONT_END_PORT_53_UDP_ADDR=10.96.0.7",
	}
	no := false
	for _, c := range []struct {
		what  string
		links *bool
		want  []string
	}{
		{"as by default", nil, slices.Concat(frontend, kubernetes)},
		{"without links", &no, kubernetes},
	} {
		p := clusterPod("shop")
		p.Spec.EnableServiceLinks = c.links
		got, err := New(Config{Services: s}).Container(p, &p.Spec.Containers[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, name := range got.Env.Names {
			list = append(list, name+"="+got.Env.Values[name])
		}
		if !slices.Equal(list, c.want) {
			t.Errorf("%s: got %q, want %q", c.what, list, c.want)
		}
	}
}

func TestAPodsOwnVariablesPrecedeThoseOfServicesAndMayNameThem(t *testing.T) {
	s := &Services{synced: true, all: []*v1.Service{service("shop", "db", "10.96.0.7", v1.ServicePort{Port: 5432})}}
	p := clusterPod("shop")
	c := &p.Spec.Containers[0]
	c.Env = []v1.EnvVar{{Name: "DB_PORT", Value: "mine"}, {Name: "URL", Value: "pg://$(DB_SERVICE_HOST):$(DB_PORT)/$(NOT_THERE)"}}
	got, err := New(Config{Services: s}).Container(p, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := got.Env.Values; v["DB_PORT"] != "mine" || v["URL"] != "pg://10.96.0.7:mine/$(NOT_THERE)" || v["DB_SERVICE_HOST"] != "10.96.0.7" {
		t.Errorf("got %v", v)
	}
	if first := got.Env.Names[:2]; !slices.Equal(first, []string{"DB_PORT", "URL"}) {
		t.Errorf("the pod's own are not the first: %q", got.Env.Names)
	}
}

func TestAPodOfTheClusterWaitsForTheServicesAndAStaticPodDoesNot(t *testing.T) {
	p := clusterPod("shop")
	r := New(Config{Services: NewServices("", "")})
	if _, err := r.Container(p, &p.Spec.Containers[0], nil); !errors.Is(err, errServicesUnknown) {
		t.Errorf("got %v, want %v", err, errServicesUnknown)
	}
	p.Annotations[pod.AnnotationSource] = string(pod.SourceFile)
	if got, err := r.Container(p, &p.Spec.Containers[0], nil); err != nil || len(got.Env.Names) > 0 {
		t.Errorf("static: got %v, %v, want none", got.Env, err)
	}
}

// followed is a ServiceLister that says what a test says.
type followed chan []*v1.Service

func (f followed) FollowServices(ctx context.Context, set func([]*v1.Service, error)) {
	set(nil, errors.New("connection refused"))
	for {
		select {
		case all := <-f:
			set(all, nil)
		case <-ctx.Done():
			return
		}
	}
}

func TestStoredServicesServeAPoddThatStartsWithoutItsApiserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "cluster", "services.json")
		p := clusterPod("shop")
		run := func(server string, then func(r *Resolver, say followed)) {
			s, say := NewServices(file, server), make(followed)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.Run(ctx, say) }()
			then(New(Config{Services: s}), say)
			cancel()
			<-done
		}
		env := func(r *Resolver) string {
			got, err := r.Container(p, &p.Spec.Containers[0], nil)
			return fmt.Sprint(got.Env.Values["DB_SERVICE_HOST"], got.Env.Values["DB_SERVICE_PORT_SQL"], " ", err)
		}
		unknown := " " + errServicesUnknown.Error()
		run("https://a", func(r *Resolver, say followed) {
			time.Sleep(time.Hour)
			if got := env(r); got != unknown {
				t.Errorf("nothing stored: got %q", got)
			}
			db := service("shop", "db", "10.96.0.7", v1.ServicePort{Name: "sql", Port: 5432})
			db.Annotations = map[string]string{"secret": "of no use here"}
			say <- []*v1.Service{db}
			synctest.Wait()
		})
		run("https://a", func(r *Resolver, say followed) {
			time.Sleep(9 * time.Second)
			if got := env(r); got != unknown {
				t.Errorf("it may answer yet: got %q", got)
			}
			time.Sleep(2 * time.Second)
			if got := env(r); got != "10.96.0.75432 <nil>" {
				t.Errorf("it is away: got %q", got)
			}
			say <- []*v1.Service{service("shop", "db", "10.96.0.8", v1.ServicePort{Name: "sql", Port: 5432})}
			synctest.Wait()
			if got := env(r); got != "10.96.0.85432 <nil>" {
				t.Errorf("it is back: got %q", got)
			}
		})
		run("https://b", func(r *Resolver, _ followed) {
			time.Sleep(time.Minute)
			if got := env(r); got != unknown {
				t.Errorf("another cluster's: got %q", got)
			}
		})
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v", info, err)
		}
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), "of no use") {
			t.Errorf("got %s, %v", text, err)
		}
		if err := os.WriteFile(file, text[:len(text)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		run("https://a", func(r *Resolver, _ followed) {
			time.Sleep(time.Minute)
			if got := env(r); got != unknown {
				t.Errorf("a damaged file: got %q", got)
			}
		})
	})
}
