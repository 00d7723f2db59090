package server

import (
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kubelet's pages for people who look at a component (KEP-4827, KEP-4828). They are text,
// or an object of config.k8s.io for clients that accept one. Upstream's package for them is
// part of the generic apiserver, and would link all of it.

// zpagesGroup serves /flagz and /statusz.
func (s *Server) zpagesGroup() group {
	return group{middleware: []middleware{readOnly, noBody}, routes: []route{
		{"/flagz", zpage("Flagz", func(w io.Writer) { s.flagzText(w) }, func() any { return s.flagz() })},
		{"/statusz", zpage("Statusz", func(w io.Writer) { s.statuszText(w) }, func() any { return s.statusz() })},
	}}
}

const zpagesGroupName = "config.k8s.io"

// zpagesVersions are the versions of the objects; the first is deprecated upstream.
var zpagesVersions = []string{"v1alpha1", "v1beta1"}

// zobject holds the fields that both objects begin with.
type zobject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func (o *zobject) setKind(version, kind string) {
	o.APIVersion, o.Kind, o.Name = zpagesGroupName+"/"+version, kind, "kubelet"
}

// flagzObject and statuszObject mirror the types of k8s.io/apiserver/pkg/server.
type flagzObject struct {
	zobject
	Flags map[string]string `json:"flags,omitempty"`
}

type statuszObject struct {
	zobject
	StartTime     metav1.Time `json:"startTime"`
	UptimeSeconds int64       `json:"uptimeSeconds"`
	GoVersion     string      `json:"goVersion,omitempty"`
	BinaryVersion string      `json:"binaryVersion"`
	Paths         []string    `json:"paths"`
}

func (s *Server) flagz() *flagzObject {
	o := &flagzObject{}
	if s.config.Kubelet.Flags != nil {
		o.Flags = s.config.Kubelet.Flags()
	}
	return o
}

func (s *Server) statusz() *statuszObject {
	return &statuszObject{
		StartTime: metav1.NewTime(s.started), UptimeSeconds: int64(time.Since(s.started).Seconds()),
		GoVersion: runtime.Version(), BinaryVersion: strings.TrimPrefix(s.config.Version.Kubernetes, "v"), Paths: s.listedPaths(),
	}
}

// listedPaths returns the paths of the kubelet's API, each cut off at its first wildcard.
func (s *Server) listedPaths() []string {
	var paths []string
	for _, g := range s.kubeletGroups() {
		for _, r := range g.routes {
			if path, _, _ := strings.Cut(r.pattern, "{"); r.handler != nil && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// zheader is upstream's text. It is meant for people, and says so.
const zheader = `
kubelet %s
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`

func (s *Server) flagzText(w io.Writer) {
	fmt.Fprintf(w, zheader, "flagz")
	flags := s.flagz().Flags
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(w, "%s=%s\n", name, flags[name])
	}
}

func (s *Server) statuszText(w io.Writer) {
	fmt.Fprintf(w, zheader, "statusz")
	o := s.statusz()
	up := time.Duration(o.UptimeSeconds) * time.Second
	const hour, minute = time.Hour, time.Minute
	fmt.Fprintf(w, "\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\n\nPaths: %s\n",
		o.StartTime.Format(time.UnixDate), up/hour, up%hour/minute, up%minute/time.Second, o.GoVersion, o.BinaryVersion, strings.Join(o.Paths, " "))
}

// zpage responds with the text, or with the object if the request accepts it by group, version
// and kind. A bare application/json without them does not count, as upstream.
func zpage(kind string, text func(io.Writer), object func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept := strings.TrimSpace(r.Header.Get("Accept"))
		if accept == "" {
			accept = "text/plain"
		}
		for each := range strings.SplitSeq(accept, ",") {
			media, of, err := mime.ParseMediaType(each)
			switch {
			case err != nil:
				continue
			case media == "text/plain" && of["as"] == "", media == "text/*", media == "*/*":
				w.Header().Set("Content-Type", "text/plain; charset=utf-8")
				text(w)
				return
			case media == "application/json" && of["g"] == zpagesGroupName && of["as"] == kind && slices.Contains(zpagesVersions, of["v"]):
				o := object()
				if k, ok := o.(interface{ setKind(version, kind string) }); ok {
					k.setKind(of["v"], kind)
				}
				writeJSON(w, o)
				return
			}
		}
		http.Error(w, fmt.Sprintf("only text/plain and application/json;v=v1beta1;g=%s;as=%s are available", zpagesGroupName, kind), http.StatusNotAcceptable)
	})
}
