package devices

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pluginconn"
)

const (
	// maxResources bounds the number of resources, including those of earlier plugins.
	maxResources = 256
	// maxPlugins bounds the plugins of one resource. An update has two at a time.
	maxPlugins = 8
	// maxDeviceID is in bytes.
	maxDeviceID = 1024
)

// resource is what is known about one extended resource that a plugin has, or had.
type resource struct {
	// plugins are the connected plugins, the newest last. There are several during an update of
	// the plugin.
	plugins []*plugin
	// options are those of the last plugin, once it has ended.
	options pluginOptions
	// everRegistered says that a plugin has listed devices, or that the last plugin has ended,
	// under this podd or an earlier one.
	everRegistered bool
	// devices are those of the serving plugin. Without a plugin, they are those of the last
	// one, all unhealthy.
	devices map[string]device
	// stoppedAt is the time since which there is no plugin.
	stoppedAt time.Time
	// gone says that there has been no plugin for so long that the node no longer has the
	// resource.
	gone bool
}

// device is a device in a plugin's newest list.
type device struct {
	healthy   bool
	numaNodes []int64 // the machine's NUMA nodes that it is close to
}

// serving returns the plugin whose list podd uses and that podd calls: the newest one that has
// listed its devices, otherwise the newest one, nil for none. Upstream calls a plugin as soon as
// it has registered, but uses the list that arrived last from any plugin. It may therefore ask a
// plugin for devices that the plugin does not know
// (https://github.com/kubernetes/kubernetes/pull/135437).
func (r *resource) serving() *plugin {
	for _, pl := range slices.Backward(r.plugins) {
		if pl.listed {
			return pl
		}
	}
	if len(r.plugins) == 0 {
		return nil
	}
	return r.plugins[len(r.plugins)-1]
}

// listed says that a connected plugin has listed its devices.
func (r *resource) listed() bool {
	pl := r.serving()
	return pl != nil && pl.listed
}

// pluginAt returns the plugin at an endpoint, nil for none.
func (r *resource) pluginAt(endpoint string) *plugin {
	for _, pl := range r.plugins {
		if pl.endpoint == endpoint {
			return pl
		}
	}
	return nil
}

// oldestStandby returns the oldest plugin that does not serve; nil if there is none.
func (r *resource) oldestStandby() *plugin {
	serving := r.serving()
	for _, pl := range r.plugins {
		if pl != serving {
			return pl
		}
	}
	return nil
}

func (r *resource) healthyIDs() (ids []string) {
	for id, d := range r.devices {
		if d.healthy {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (r *resource) allHealthy(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !r.devices[id].healthy })
}

// isExtendedResource says whether plugins may provide a resource of that name (upstream's
// IsExtendedResourceName).
func isExtendedResource(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name)) == 0
}

// devicesOf checks a plugin's list. For a device that is listed twice, the last entry
// counts.
func devicesOf(list []*pluginapi.Device) (map[string]device, error) {
	all := make(map[string]device, len(list))
	for _, d := range list {
		if id := d.GetID(); id == "" || len(id) > maxDeviceID || !utf8.ValidString(id) {
			return nil, fmt.Errorf("a device has the ID %q: want 1 to %d bytes of UTF-8", shorten(id), maxDeviceID)
		}
		one := device{healthy: d.GetHealth() == pluginapi.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			if len(one.numaNodes) < maxNUMANodes {
				one.numaNodes = append(one.numaNodes, n.GetID())
			}
		}
		all[d.GetID()] = one
	}
	return all, nil
}

// maxNUMANodes is more NUMA nodes than any machine has.
const maxNUMANodes = 64

// updateDevices processes a plugin's list.
func (m *Manager) updateDevices(name string, pl *plugin, list []*pluginapi.Device) error {
	devices, err := devicesOf(list)
	if err != nil {
		return err
	}
	var n notification
	m.mu.Lock()
	r := m.resources[name]
	if r == nil || !slices.Contains(r.plugins, pl) {
		m.mu.Unlock()
		return nil // it has ended
	}
	first := !pl.listed
	same := !first && maps.EqualFunc(pl.devices, devices, func(a, b device) bool { return a.healthy == b.healthy && slices.Equal(a.numaNodes, b.numaNodes) })
	if !same {
		pl.devices, pl.listed = devices, true
		if r.serving() == pl {
			m.takeListLocked(name, r, &n)
		}
	}
	m.mu.Unlock()
	if level := slog.LevelInfo; !same {
		if !first {
			level = slog.LevelDebug // as often as the plugin likes; pods' statuses show it
		}
		m.log.Log(context.Background(), level, "device plugin has listed its devices", "resource", name, "endpoint", pl.endpoint,
			"devices", len(devices), "healthy", len((&resource{devices: devices}).healthyIDs()))
	}
	m.notify(n)
	m.loop.Wake()
	return nil
}

// takeListLocked sets a resource's devices to the list of its serving plugin. If that plugin has
// not sent a list yet, the devices stay as they are.
func (m *Manager) takeListLocked(name string, r *resource, n *notification) {
	pl := r.serving()
	if pl == nil || !pl.listed {
		return
	}
	m.unsaved = m.unsaved || !r.everRegistered
	r.devices, r.everRegistered = pl.devices, true
	m.confirmGrantsLocked(name, r)
	m.addUsersLocked(name, n)
	m.newGenerationLocked(n)
	n.nodeChanged = true
}

// confirmGrantsLocked confirms the grants that pods had before podd started.
func (m *Manager) confirmGrantsLocked(name string, r *resource) {
	for _, o := range m.pods {
		for _, grants := range o.containers {
			if g := grants[name]; g != nil && r.allHealthy(g.ids) {
				g.seenHealthy = true
			}
		}
	}
}

// addUsersLocked adds the pods that have devices of a resource to a notification.
func (m *Manager) addUsersLocked(name string, n *notification) {
	for uid, o := range m.pods {
		for _, grants := range o.containers {
			if grants[name] != nil {
				n.addPod(uid)
			}
		}
	}
}

// handlePluginEnd handles the end of a plugin. last says that its resource has no other plugin.
func (m *Manager) handlePluginEnd(name string, pl *plugin) (last bool) {
	var n notification
	m.mu.Lock()
	if r := m.resources[name]; m.removePluginLocked(name, pl, &n) && len(r.plugins) == 0 {
		last = true
		// If its plugin has listed nothing, the resource still exists, with no devices.
		m.unsaved = m.unsaved || !r.everRegistered
		r.options, r.stoppedAt, r.everRegistered = pl.options, time.Now(), true
		for id, d := range r.devices {
			r.devices[id] = device{numaNodes: d.numaNodes}
		}
		m.addUsersLocked(name, &n)
		n.nodeChanged = true
	}
	m.mu.Unlock()
	m.notify(n)
	m.loop.Wake()
	return last
}

// removePluginLocked removes a plugin from its resource. If it was the serving one, another
// plugin takes over. It returns whether the plugin was there.
func (m *Manager) removePluginLocked(name string, pl *plugin, n *notification) bool {
	r := m.resources[name]
	if r == nil {
		return false
	}
	at := slices.Index(r.plugins, pl)
	if at < 0 {
		return false
	}
	served := r.serving() == pl
	r.plugins = slices.Delete(r.plugins, at, at+1)
	if served {
		m.takeListLocked(name, r, n)
	}
	return true
}

// Resources returns the extended resources of the Node, in whole devices: capacity counts
// all listed devices, allocatable the healthy ones. A resource that is gone counts 0, so that
// the Node says so.
func (m *Manager) Resources() (capacity, allocatable v1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resources) == 0 {
		return nil, nil
	}
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	for name, r := range m.resources {
		if r.everRegistered {
			capacity[v1.ResourceName(name)] = *quantity.NewQuantity(int64(len(r.devices)), quantity.DecimalSI)
			allocatable[v1.ResourceName(name)] = *quantity.NewQuantity(int64(len(r.healthyIDs())), quantity.DecimalSI)
		}
	}
	return capacity, allocatable
}

func shorten(text string) string { return pluginconn.Shorten(text) }
