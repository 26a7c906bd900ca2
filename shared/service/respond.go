package service

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// WriteJSON writes v as JSON with a status.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		WriteError(w, http.StatusInternalServerError, "encode the answer: %v", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away is no error of ours.
	_, _ = w.Write(append(data, '\n'))
}

// WriteError writes {"error_code": status, "message": …} as Connect does.
func WriteError(w http.ResponseWriter, status int, format string, args ...any) {
	WriteJSON(w, status, struct {
		Code    int    `json:"error_code"`
		Message string `json:"message"`
	}{status, fmt.Sprintf(format, args...)})
}
