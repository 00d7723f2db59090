package podenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Services are the cluster's Services that pods get variables of. Make one with
// NewServices, and Run it once.
type Services struct {
	stored storedServices

	mu     sync.Mutex
	all    []*v1.Service
	synced bool
}

// NoServices serves a node without a cluster: pods get no variables of Services.
var NoServices *Services

// NewServices returns an empty Services. It stores them in a file for a start without the
// apiserver of that URL; "" for no file.
func NewServices(file, server string) *Services {
	return &Services{stored: newStoredServices(file, server)}
}

// ServiceLister follows Services.
type ServiceLister interface {
	// FollowServices calls set with all Services that have an address after each change,
	// and with the reason while they are unavailable. Calls never overlap. It blocks
	// until ctx ends.
	FollowServices(ctx context.Context, set func(all []*v1.Service, err error))
}

// Run follows the Services until ctx ends. Those that were stored count from ten seconds
// after its start until the apiserver answers.
func (s *Services) Run(ctx context.Context, from ServiceLister) error {
	next := make(chan []*v1.Service, 1) // the newest that are not stored yet
	var work sync.WaitGroup
	defer work.Wait()
	if s.stored.file.Path != "" {
		defer time.AfterFunc(storedFallbackDelay, s.useStored).Stop()
		work.Go(func() { s.stored.run(ctx, next) })
	}
	from.FollowServices(ctx, func(all []*v1.Service, err error) {
		if err != nil {
			return // the pods' source reports that the apiserver does not respond
		}
		s.mu.Lock()
		s.all, s.synced = all, true
		s.mu.Unlock()
		select {
		case <-next:
		default:
		}
		next <- all // one goroutine at a time calls this
	})
	return ctx.Err()
}

func (s *Services) useStored() {
	all, ok := s.stored.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok && !s.synced {
		s.all, s.synced = all, true
	}
}

func (s *Services) list() (all []*v1.Service, known bool) {
	if s == nil {
		return nil, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, s.synced
}

// masterService is the one of namespace default that every pod has variables of.
const masterService = "kubernetes"

// errServicesUnknown is the kubelet's.
var errServicesUnknown = errors.New("services have not yet been read at least once, cannot construct envvars")

// variables are those of the Services of a pod's namespace, unless it does not want them
// (enableServiceLinks), and of kubernetes, in the order of their names. A pod of the cluster
// needs them; one of a manifest has those that are known.
func (s *Services) variables(p *v1.Pod) (env pod.Environment, err error) {
	all, known := s.list()
	if !known && pod.FromCluster(p) {
		return env, errServicesUnknown
	}
	links := p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks
	chosen := map[string]*v1.Service{}
	for _, svc := range all {
		switch {
		case svc.Spec.ClusterIP == "" || svc.Spec.ClusterIP == v1.ClusterIPNone || len(svc.Spec.Ports) == 0:
		case links && svc.Namespace == p.Namespace:
			chosen[svc.Name] = svc
		case svc.Namespace == v1.NamespaceDefault && svc.Name == masterService && chosen[svc.Name] == nil:
			chosen[svc.Name] = svc
		}
	}
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		setService(&env, chosen[name])
	}
	return env, nil
}

// setService sets the variables of one Service: its address, and those that Docker's links
// had (pkg/kubelet/envvars).
func setService(env *pod.Environment, s *v1.Service) {
	variable := func(text string) string { return strings.ToUpper(strings.ReplaceAll(text, "-", "_")) }
	prefix, ip := variable(s.Name), s.Spec.ClusterIP
	env.Set(prefix+"_SERVICE_HOST", ip)
	env.Set(prefix+"_SERVICE_PORT", strconv.Itoa(int(s.Spec.Ports[0].Port)))
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			env.Set(prefix+"_SERVICE_PORT_"+variable(p.Name), strconv.Itoa(int(p.Port)))
		}
	}
	for i, p := range s.Spec.Ports {
		protocol, port := cmp.Or(string(p.Protocol), string(v1.ProtocolTCP)), strconv.Itoa(int(p.Port))
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			env.Set(prefix+"_PORT", url)
		}
		of := fmt.Sprintf("%s_PORT_%s_%s", prefix, port, strings.ToUpper(protocol))
		env.Set(of, url)
		env.Set(of+"_PROTO", strings.ToLower(protocol))
		env.Set(of+"_PORT", port)
		env.Set(of+"_ADDR", ip)
	}
}
