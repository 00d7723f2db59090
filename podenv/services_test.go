package podenv

import (
	"errors"
	"slices"
	"testing"

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
	s := &Services{known: true, all: []*v1.Service{
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
	s := &Services{known: true, all: []*v1.Service{service("shop", "db", "10.96.0.7", v1.ServicePort{Port: 5432})}}
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
	r := New(Config{Services: NewServices()})
	if _, err := r.Container(p, &p.Spec.Containers[0], nil); !errors.Is(err, errServicesUnknown) {
		t.Errorf("got %v, want %v", err, errServicesUnknown)
	}
	p.Annotations[pod.AnnotationSource] = string(pod.SourceFile)
	if got, err := r.Container(p, &p.Spec.Containers[0], nil); err != nil || len(got.Env.Names) > 0 {
		t.Errorf("static: got %v, %v, want none", got.Env, err)
	}
}
