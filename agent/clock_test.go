package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogsGoInAMinuteThoughTheClockWasSetBack: while podd was away, by ten hours,
// which the file of a grave then is ahead of.
func TestLogsGoInAMinuteThoughTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scenario{node: newNode(newFakeRuntime(t)), began: time.Now(), files: map[string][]byte{
			"shop.yaml": []byte("metadata: {name: shop}\nspec: {containers: [{name: web, image: web}]}\n"),
		}}
		defer s.end()
		s.play("start-agent; speak http; apply shop.yaml; sleep 1s; remove shop; sleep 2s; expect nothing left; stop-agent; expect shop logs")
		stones, err := filepath.Glob(filepath.Join(s.graves, "*.json"))
		if err != nil || len(stones) != 1 {
			t.Fatalf("got %v, %v, want one file", stones, err)
		}
		text, err := os.ReadFile(stones[0])
		if err != nil {
			t.Fatal(err)
		}
		var stone map[string]any
		if err := json.Unmarshal(text, &stone); err != nil {
			t.Fatal(err)
		}
		stone["due"] = time.Now().Add(10 * time.Hour)
		if text, err = json.Marshal(stone); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(stones[0], text, 0o640); err != nil {
			t.Fatal(err)
		}
		s.play("start-agent; sleep 50s; expect shop logs; sleep 15s; expect shop logs=false")
	})
}
