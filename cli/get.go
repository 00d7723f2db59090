package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podd/internal/pod"
	"podd/server"
)

// GetOptions are the options of podd get.
type GetOptions struct {
	StateDir string
	// Resource is the kind as given on the command line: configmaps, cm, secret, …
	Resource string
	// Namespace and Names (with or without namespace/) select objects; empty means
	// all.
	Namespace string
	Names     []string
	// Output is wide, json, yaml, name, or empty for the table.
	Output string
}

// getResource is a kind that podd get supports.
type getResource struct {
	kind, singular, plural, short string
	columns                       []getColumn
}

// getColumn is a column of a table.
type getColumn struct {
	title string
	cell  func(i *server.ObjectInfo) string
	// wide columns are shown with -o wide only.
	wide bool
}

var getResources = []getResource{
	{"ConfigMap", "configmap", "configmaps", "cm", valueColumns()},
	{"Secret", "secret", "secrets", "", append([]getColumn{{"TYPE", func(i *server.ObjectInfo) string { return printable(i.Type) }, false}}, valueColumns()...)},
	{"PersistentVolume", "persistentvolume", "persistentvolumes", "pv", volumeColumns()},
	{"PersistentVolumeClaim", "persistentvolumeclaim", "persistentvolumeclaims", "pvc", claimColumns()},
}

// Resources returns the kinds that podd get supports, by the names that kubectl
// completes.
func Resources() []string {
	var all []string
	for _, r := range getResources {
		all = append(all, r.plural)
	}
	return all
}

func resourceOf(name string) (getResource, error) {
	for _, r := range getResources {
		if n := strings.ToLower(name); n != "" && (n == r.singular || n == r.plural || n == r.short) {
			return r, nil
		}
	}
	return getResource{}, UsageErrorf("podd get has no %q: it lists %s (podd ps lists pods)", name, strings.Join(Resources(), ", "))
}

// Run prints the objects as kubectl get does, but never their values.
func (o *GetOptions) Run(ctx context.Context, out, errOut io.Writer) error {
	r, err := resourceOf(o.Resource)
	if err != nil {
		return err
	}
	all, err := newClient(o.StateDir).objects(ctx)
	if err != nil {
		return err
	}
	found, missing := o.selectObjects(r, all)
	if err := o.print(out, errOut, r, found); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s", strings.Join(missing, "\n"))
	}
	return nil
}

// selectObjects returns the selected objects. missing are the names that were not found.
func (o *GetOptions) selectObjects(r getResource, all []server.ObjectInfo) (found []server.ObjectInfo, missing []string) {
	all = slices.DeleteFunc(all, func(i server.ObjectInfo) bool {
		return i.Kind != r.kind || o.Namespace != "" && i.Namespace != "" && i.Namespace != o.Namespace
	})
	if len(o.Names) == 0 {
		return all, nil
	}
	for _, name := range o.Names {
		before := len(found)
		for i := range all {
			if all[i].Name == name || all[i].Namespace+"/"+all[i].Name == name {
				found = append(found, all[i])
			}
		}
		if len(found) == before {
			missing = append(missing, fmt.Sprintf("%s %q not found%s", r.plural, name, o.within()))
		}
	}
	return found, missing
}

func (o *GetOptions) print(out, errOut io.Writer, r getResource, found []server.ObjectInfo) error {
	switch {
	case o.Output == "json" || o.Output == "yaml":
		return WriteObject(out, o.Output, objectList(found))
	case o.Output == "name":
		for _, info := range found {
			if _, err := fmt.Fprintln(out, printable(r.singular+"/"+info.Name)); err != nil {
				return err
			}
		}
		return nil
	case len(found) == 0 && len(o.Names) > 0:
		return nil
	case len(found) == 0:
		_, err := fmt.Fprintf(errOut, "No %s found%s.\n", r.plural, o.within())
		return err
	}
	t := table{width: widthOf(out)}
	return t.write(out, o.rows(r, found, time.Now()))
}

// within names the selected namespace, if any.
func (o *GetOptions) within() string {
	if o.Namespace == "" {
		return ""
	}
	return fmt.Sprintf(" in namespace %q", o.Namespace)
}

// rows returns kubectl's columns, and the pods that use the object.
func (o *GetOptions) rows(r getResource, found []server.ObjectInfo, now time.Time) [][]string {
	columns := []getColumn{{"NAME", func(i *server.ObjectInfo) string { return i.Name }, false}}
	if o.Namespace == "" && pod.Namespaced(r.kind) {
		columns = append([]getColumn{{"NAMESPACE", func(i *server.ObjectInfo) string { return i.Namespace }, false}}, columns...)
	}
	ofKind := func(wide bool) {
		for _, c := range r.columns {
			if c.wide == wide {
				columns = append(columns, c)
			}
		}
	}
	ofKind(false)
	columns = append(columns, getColumn{"AGE", func(i *server.ObjectInfo) string { return age(i.Seen, now) }, false})
	ofKind(true)
	columns = append(columns, getColumn{"ORIGIN", func(i *server.ObjectInfo) string { return printable(originOf(i)) }, true})
	if pod.Namespaced(r.kind) {
		columns = append(columns, getColumn{"USED BY", func(i *server.ObjectInfo) string { return joined(i.UsedBy) }, false})
	}
	rows := make([][]string, 1+len(found))
	for _, c := range columns {
		if c.wide && o.Output != "wide" {
			continue
		}
		rows[0] = append(rows[0], c.title)
		for i := range found {
			rows[i+1] = append(rows[i+1], printable(c.cell(&found[i])))
		}
	}
	return rows
}

// valueColumns returns the columns of objects with keys.
func valueColumns() []getColumn {
	return []getColumn{
		{"DATA", func(i *server.ObjectInfo) string { return fmt.Sprint(len(i.Keys)) }, false},
		{"KEYS", func(i *server.ObjectInfo) string { return joined(i.Keys) }, true},
	}
}

// joined formats a list as kubectl does; <none> if it is empty.
func joined(all []string) string {
	if len(all) == 0 {
		return "<none>"
	}
	return strings.Join(all, ",")
}

func age(since, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since))
}

func originOf(i *server.ObjectInfo) string {
	if i.Line > 0 && i.Origin != "" {
		return fmt.Sprintf("%s:%d", i.Origin, i.Line)
	}
	return i.Origin
}

// listedObject is an object in the API's form, but without its data, which the
// command never receives.
type listedObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Type              string              `json:"type,omitempty"`
	Immutable         *bool               `json:"immutable,omitempty"`
	Keys              *[]string           `json:"keys,omitempty"`
	Storage           *server.StorageInfo `json:"storage,omitempty"`
	UsedBy            []string            `json:"usedBy"`
}

func objectList(found []server.ObjectInfo) any {
	list := struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []listedObject `json:"items"`
	}{TypeMeta: metav1.TypeMeta{Kind: "List", APIVersion: "v1"}, Items: []listedObject{}}
	for i := range found {
		info := &found[i]
		item := listedObject{
			TypeMeta:   metav1.TypeMeta{Kind: info.Kind, APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: info.Namespace, Name: info.Name, CreationTimestamp: metav1.NewTime(info.Seen)},
			Type:       info.Type, Immutable: info.Immutable,
			Storage: info.Storage, UsedBy: append([]string{}, info.UsedBy...),
		}
		if info.Storage == nil {
			keys := append([]string{}, info.Keys...)
			item.Keys = &keys
		}
		if at := originOf(info); at != "" {
			item.Annotations = map[string]string{annotationOrigin: at}
		}
		list.Items = append(list.Items, item)
	}
	return list
}
