package podenv

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/checkpoint"
	"podd/internal/wake"
)

const (
	// storedFallbackDelay is how long podd waits for the apiserver before stored Services count, as
	// for the pods (podconfig/apiserver).
	storedFallbackDelay = 10 * time.Second
	// savingPause is between two savings.
	savingPause = time.Minute
	// maxStoredBytes bounds the file: a hundred thousand Services.
	maxStoredBytes = 32 << 20
)

// storedServices is a file with what variables need of the Services. Without it, no pod of
// the cluster could start a container while the apiserver is away. A file that cannot be
// read counts as none: pods wait then.
type storedServices struct {
	file   checkpoint.File[serviceRecord]
	server string
}

func newStoredServices(path, server string) storedServices {
	return storedServices{checkpoint.File[serviceRecord]{Path: path, Format: checkpoint.Format{Durable: true, SkipUnchanged: true, MaxBytes: maxStoredBytes}}, server}
}

// serviceRecord is the content of the file.
type serviceRecord struct {
	Server   string          `json:"server"`
	Services []serviceValues `json:"services"`
}

type serviceValues struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	IP        string           `json:"ip"`
	Ports     []v1.ServicePort `json:"ports"`
}

// run stores what comes, until ctx ends.
func (s storedServices) run(ctx context.Context, next <-chan []*v1.Service) {
	for {
		select {
		case <-ctx.Done():
			return
		case all := <-next:
			_ = s.write(all) // what is there is older, and the next change tries again
		}
		if !wake.Sleep(ctx, savingPause) {
			return
		}
	}
}

func (s storedServices) write(all []*v1.Service) error {
	r := serviceRecord{Server: s.server, Services: make([]serviceValues, 0, len(all))}
	for _, svc := range all {
		r.Services = append(r.Services, serviceValues{svc.Namespace, svc.Name, svc.Spec.ClusterIP, svc.Spec.Ports})
	}
	slices.SortFunc(r.Services, func(a, b serviceValues) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s.file.Write(r)
}

// read returns the stored Services; ok is false if the file has none of this cluster.
func (s storedServices) read() (all []*v1.Service, ok bool) {
	r, err := s.file.Read()
	if err != nil || r.Server != s.server {
		return nil, false
	}
	for _, v := range r.Services {
		svc := &v1.Service{Spec: v1.ServiceSpec{ClusterIP: v.IP, Ports: v.Ports}}
		svc.Namespace, svc.Name = v.Namespace, v.Name
		all = append(all, svc)
	}
	return all, true
}
