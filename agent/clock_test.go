package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogsGoInAMinuteThoughTheClockWasSetBack: while podd was not running, by ten
// hours, so that the checkpoint of the removal is in the future.
func TestLogsGoInAMinuteThoughTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scenario{node: newNode(newFakeRuntime(t)), began: time.Now(), files: map[string][]byte{
			"shop.yaml": []byte("metadata: {name: shop}\nspec: {containers: [{name: web, image: web}]}\n"),
		}}
		defer s.end()
		s.play("start-agent; speak http; apply shop.yaml; sleep 1s; remove shop; sleep 2s; expect nothing left; stop-agent; expect shop logs")
		files, err := filepath.Glob(filepath.Join(s.logRemovals, "*.json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("got %v, %v, want one file", files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		var checkpoint map[string]any
		if err := json.Unmarshal(text, &checkpoint); err != nil {
			t.Fatal(err)
		}
		checkpoint["due"] = time.Now().Add(10 * time.Hour)
		if text, err = json.Marshal(checkpoint); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], text, 0o640); err != nil {
			t.Fatal(err)
		}
		s.play("start-agent; sleep 50s; expect shop logs; sleep 15s; expect shop logs=false")
	})
}
