package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/checkpoint"
	"podd/internal/pod"
)

func newCheckpoint(path string) checkpoint.File[checkpointData] {
	return checkpoint.File[checkpointData]{Path: path, Format: checkpoint.Format{Codec: checkpoint.Checksummed}, Check: func(s *checkpointData) error {
		if s.Version != 1 {
			return fmt.Errorf("version %d of it is not known", s.Version)
		}
		return nil
	}}
}

type checkpointData struct {
	Version int `json:"version"`
	// Resources are the resources of plugins that were not gone.
	Resources []string                                     `json:"resources,omitempty"`
	Pods      map[pod.UID]map[string]map[string]savedGrant `json:"pods,omitempty"`
}

type savedGrant struct {
	IDs      []string           `json:"ids"`
	Nodes    map[string][]int64 `json:"nodes,omitempty"`
	Response []byte             `json:"response,omitempty"`
}

// saveIfNeeded saves changes that nobody waits for.
func (m *Manager) saveIfNeeded() {
	m.mu.Lock()
	unsaved := m.unsaved
	m.mu.Unlock()
	if unsaved {
		m.save()
	}
}

// save writes the checkpoint. If that fails, the pod runs all the same, but a restarted
// podd would not know its devices.
func (m *Manager) save() {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	m.unsaved = false
	s, err := m.savedLocked()
	m.mu.Unlock()
	if err == nil {
		err = m.checkpoint.Write(s)
	}
	if err != nil {
		m.log.Error("cannot save which pods have which devices: a restart of podd forgets it", "file", m.checkpoint.Path, "error", err)
	}
}

func (m *Manager) savedLocked() (checkpointData, error) {
	s := checkpointData{Version: 1, Pods: map[pod.UID]map[string]map[string]savedGrant{}}
	for _, name := range slices.Sorted(maps.Keys(m.resources)) {
		if r := m.resources[name]; r.everRegistered && !r.gone {
			s.Resources = append(s.Resources, name)
		}
	}
	for uid, o := range m.pods {
		if len(o.containers) == 0 {
			continue
		}
		s.Pods[uid] = map[string]map[string]savedGrant{}
		for container, grants := range o.containers {
			s.Pods[uid][container] = map[string]savedGrant{}
			for name, g := range grants {
				response, err := proto.Marshal(g.response)
				if err != nil {
					return checkpointData{}, fmt.Errorf("encode the response of the plugin of %s: %w", name, err)
				}
				s.Pods[uid][container][name] = savedGrant{IDs: g.ids, Nodes: g.numaNodes, Response: response}
			}
		}
	}
	return s, nil
}

// restore reads the checkpoint. It sets a damaged one aside, and starts as if there were
// none.
func (m *Manager) restore() {
	s, err := m.checkpoint.Read()
	if errors.Is(err, fs.ErrNotExist) {
		m.noCheckpoint, m.unsaved = true, true
		return
	}
	pods := map[pod.UID]*podDevices{}
	if err == nil {
		pods, err = podDevicesOf(s)
	}
	if err != nil {
		var moved error
		m.checkpointHint, moved = m.checkpoint.SetAside()
		m.unsaved = moved == nil // a podd that finds no file considers itself the first one
		err = errors.Join(err, moved)
		m.checkpointError = err.Error()
		m.log.Error("cannot read which pods have which devices: assuming that none has any", "file", m.checkpoint.Path, "hint", m.checkpointHint, "error", err)
		return
	}
	m.pods = pods
	now := time.Now()
	for _, name := range s.Resources {
		if len(m.resources) < maxResources && isExtendedResource(name) {
			m.resources[name] = &resource{everRegistered: true, stoppedAt: now}
		}
	}
}

func podDevicesOf(s checkpointData) (map[pod.UID]*podDevices, error) {
	pods := map[pod.UID]*podDevices{}
	for uid, containers := range s.Pods {
		o := &podDevices{containers: map[string]map[string]*grant{}}
		for container, grants := range containers {
			o.containers[container] = map[string]*grant{}
			for name, g := range grants {
				response := &pluginapi.ContainerAllocateResponse{}
				if err := proto.Unmarshal(g.Response, response); err != nil {
					return nil, fmt.Errorf("decode the response of the plugin of %s: %w", name, err)
				}
				slices.Sort(g.IDs)
				o.containers[container][name] = &grant{ids: g.IDs, numaNodes: g.Nodes, response: response}
			}
		}
		pods[uid] = o
	}
	return pods, nil
}
