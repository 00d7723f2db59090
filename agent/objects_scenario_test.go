package agent_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"

	"podd/agent"
	"podd/internal/pod"
	"podd/objects"
)

// listener is what node makes of the agent.
type listener struct{ *agent.Agent }

func (l listener) Changed(uid pod.UID) { l.ObjectsChanged(uid) }

// contentKey is that of a node's boot.
func contentKey(boot byte) []byte { return slices.Repeat([]byte{boot}, objects.HashKeySize) }

// newStore is the store of a podd that begins, which the sources have filled.
func (n *node) newStore() *objects.Store {
	store := objects.New(objects.Config{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), HashKey: contentKey(1)})
	n.disk.Lock()
	defer n.disk.Unlock()
	store.Replace(n.objects)
	n.store = store
	return store
}

// doObjects NAME=VALUE…: all that there are from now on.
func (s *scenario) doObjects(words []string) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.node.objects = nil
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("%s: want NAME=VALUE", word)
		}
		meta := metav1.ObjectMeta{Namespace: "default", Name: key}
		o := &pod.Object{ConfigMap: &v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": value}}}
		if name, secret := strings.CutPrefix(key, "secret/"); secret {
			meta.Name = name
			o = &pod.Object{Secret: &v1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": []byte(value)}}}
		}
		s.node.objects = append(s.node.objects, o)
	}
	if s.store != nil {
		s.store.Replace(s.node.objects)
	}
	return nil
}

// doAnswers: unanswered, nothing is known of any object but of none, which is not there;
// answered, pods are notified.
func (s *scenario) doAnswers(words []string) error {
	s.disk.Lock()
	s.silent = words[0] == "unanswered"
	wants := maps.Clone(s.wants[pod.SourceFile])
	s.disk.Unlock()
	for _, d := range wants {
		if words[0] == "answered" {
			s.podd.agent.ObjectsChanged(d.UID())
		}
	}
	return nil
}

// lacks says which objects of a pod's volumes are not there.
func (n *node) lacks(p *v1.Pod) error {
	var errs []error
	for i := range p.Spec.Volumes {
		var name string
		var err error
		switch v := &p.Spec.Volumes[i]; {
		case v.ConfigMap != nil:
			name = v.ConfigMap.Name
			_, err = n.store.ConfigMap(p, name)
		case v.Secret != nil:
			name = v.Secret.SecretName
			_, err = n.store.Secret(p, name)
		}
		if n.silent && name != "none" {
			err = fmt.Errorf("configmap is not known yet: %w", pod.ErrObjectPending)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", p.Spec.Volumes[i].Name, err))
		}
	}
	return pod.WithReason("FailedMount", errors.Join(errs...))
}

// pullWithSecrets is a pull that needs its pod's Secrets; disk is locked. One that
// fails is in back-off until Retry.
func (n *node) pullWithSecrets(p *v1.Pod) pod.ImageState {
	for _, ref := range p.Spec.ImagePullSecrets {
		if _, err := n.store.Secret(p, ref.Name); err != nil || n.held[p.UID] {
			n.held[p.UID] = true
			return pod.ImageState{Reason: pod.ReasonImagePullBackOff, Message: "no credentials"}
		}
	}
	return pod.ImageState{Ready: true, Ref: "sha256:1"}
}
