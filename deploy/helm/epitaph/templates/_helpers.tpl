{{- define "epitaph.name" -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* Of every object. Helm adds `app.kubernetes.io/managed-by` itself; the plain manifests are not managed by Helm. */}}
{{- define "epitaph.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{ include "epitaph.labels.pod" (list . dict) }}
{{- end }}

{{- /* Of a pod, with labels of its own, which win: the chart's values and the pod's values are in a list. */}}
{{- define "epitaph.labels.pod" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: epitaph
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
{{- with merge dict ((index . 1).podLabels | default dict) ($root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* These cannot change in an upgrade. */}}
{{- define "epitaph.selector.agent" -}}
{app.kubernetes.io/name: epitaph, app.kubernetes.io/component: agent}
{{- end }}

{{- define "epitaph.selector.observer" -}}
{app.kubernetes.io/name: epitaph, app.kubernetes.io/component: observer}
{{- end }}

{{- define "epitaph.serviceAccount.agent" -}}
{{ .Values.agent.serviceAccount.name | default (ternary (printf "%s-agent" (include "epitaph.name" .)) "default" .Values.agent.serviceAccount.create) }}
{{- end }}

{{- define "epitaph.serviceAccount.observer" -}}
{{ .Values.observer.serviceAccount.name | default (ternary (printf "%s-observer" (include "epitaph.name" .)) "default" .Values.observer.serviceAccount.create) }}
{{- end }}

{{- /* Not empty where agents write Epitaphs. Only an observer removes old ones: without one they would fill etcd. */}}
{{- define "epitaph.epitaphs" -}}
{{- if and .Values.observer.enabled (dig "kubernetes" "epitaphs" true .Values.config) }}true{{ end }}
{{- end }}

{{- define "epitaph.lease" -}}
{{ dig "observer" "lease" "" .Values.config | default "epitaph-observer" }}
{{- end }}

{{- define "epitaph.image" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is not set, and there is no public image of Epitaph. From a release, which is in a registry (docs/releases.md): --set image.repository=HOST/PREFIX/epitaph. From the checkout: cargo xtask image --push REGISTRY/epitaph:TAG (docs/install.md); then: --set image.repository=REGISTRY/epitaph --set image.tag=TAG" }}
{{- end -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The settings as TOML. A value in JSON is the same value in TOML; `toToml` would write whole numbers as 5.0. An empty text counts
       as not set. */}}
{{- define "epitaph.toml" -}}
{{- $all := deepCopy .Values.config }}
{{- if not (include "epitaph.epitaphs" .) }}
{{- $kubernetes := default dict $all.kubernetes }}
{{- $_ := set $kubernetes "epitaphs" false }}
{{- $_ := set $all "kubernetes" $kubernetes }}
{{- end }}
{{- if .Values.collector.tlsSecret }}
{{- $otlp := dict "certificate" "/etc/epitaph/tls/ca.crt" }}
{{- if .Values.collector.tlsClient }}
{{- $_ := set $otlp "client_certificate" "/etc/epitaph/tls/tls.crt" }}
{{- $_ := set $otlp "client_key" "/etc/epitaph/tls/tls.key" }}
{{- end }}
{{- $_ := set $all "otlp" (merge $otlp (default dict $all.otlp)) }}
{{- end -}}
listen = "[::]:9464"
health_listen = "[::]:9465"

[host]
# Where the agent has the host's files.
proc = "/host/proc"
sys = "/host/sys"
{{- range $section, $settings := $all }}
{{- $lines := list }}
{{- range $key, $value := $settings }}
{{- if kindIs "map" $value }}
{{- $pairs := list }}
{{- range $name, $text := $value }}
{{- $pairs = append $pairs (printf "%s = %s" (toJson $name) (toJson $text)) }}
{{- end }}
{{- if $pairs }}
{{- $lines = append $lines (printf "%s = { %s }" $key (join ", " $pairs)) }}
{{- end }}
{{- else if not (and (kindIs "string" $value) (empty $value)) }}
{{- $lines = append $lines (printf "%s = %s" $key (toJson $value)) }}
{{- end }}
{{- end }}
{{- if $lines }}

[{{ $section }}]
{{ join "\n" $lines }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Of both kinds of pods. */}}
{{- define "epitaph.env" -}}
{{- with .Values.collector.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $.Values.collector.headersKey }}}}
{{- end }}
{{- end }}

{{- define "epitaph.volumeMounts" -}}
- {name: config, mountPath: /etc/epitaph/config, readOnly: true}
{{- if .Values.collector.tlsSecret }}
- {name: tls, mountPath: /etc/epitaph/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "epitaph.volumes" -}}
- {name: config, configMap: {name: {{ include "epitaph.name" . }}}}
{{- with .Values.collector.tlsSecret }}
- {name: tls, secret: {secretName: {{ . }}}}
{{- end }}
{{- end }}

{{- /* A namespace that would refuse the agent's pods is an error at `helm install`: the DaemonSet itself would be accepted, and no pod
       would ever start. `helm template` has no cluster to look at. */}}
{{- define "epitaph.check.podSecurity" -}}
{{- $namespace := lookup "v1" "Namespace" "" .Release.Namespace }}
{{- $level := dig "metadata" "labels" "pod-security.kubernetes.io/enforce" "" $namespace }}
{{- if has $level (list "baseline" "restricted") }}
{{- fail (printf "namespace %s enforces pod security `%s`, which does not admit the agent's read-only host paths and its capabilities BPF and PERFMON. Allow them in this namespace: kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged --overwrite" .Release.Namespace $level .Release.Namespace) }}
{{- end }}
{{- end }}

{{- /* Values that are right alone, and not together. A schema's message would not name the reason. */}}
{{- define "epitaph.check.collector" -}}
{{- $otlp := .Values.config.otlp | default dict }}
{{- if .Values.collector.tlsSecret }}
{{- range list "certificate" "client_certificate" "client_key" }}
{{- if get $otlp . }}
{{- fail (printf "collector.tlsSecret and config.otlp.%s are both set. Keep one of them: the Secret, or a file that agent.extraVolumes and observer.extraVolumes bring." .) }}
{{- end }}
{{- end }}
{{- $endpoints := compact (list $otlp.endpoint $otlp.traces_endpoint $otlp.metrics_endpoint $otlp.logs_endpoint) }}
{{- if and $endpoints (not (contains "https://" (join " " $endpoints))) }}
{{- fail (printf "collector.tlsSecret is set, and config.otlp.endpoint is %s, without TLS. Write https://, or leave collector.tlsSecret out." (first $endpoints)) }}
{{- end }}
{{- else if .Values.collector.tlsClient }}
{{- fail "collector.tlsClient is set without collector.tlsSecret, the Secret with tls.crt and tls.key. Set it, or leave collector.tlsClient out." }}
{{- end }}
{{- if and .Values.collector.headersSecret $otlp.headers }}
{{- fail "collector.headersSecret and config.otlp.headers are both set, and the Secret would replace the others. Put all headers into the Secret." }}
{{- end }}
{{- end }}

{{- /* A text such as `1m 30s` as a number. The schema has checked it. */}}
{{- define "epitaph.nanoseconds" -}}
{{- $units := dict "ns" 1 "us" 1000 "ms" 1000000 "s" 1000000000 "m" 60000000000 "h" 3600000000000 "d" 86400000000000 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+ ?(ns|us|ms|s|m|h|d)" . -1 }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | int64) (get $units (regexFind "[a-z]+" .))) }}
{{- end }}
{{- $sum }}
{{- end }}

{{- /* The agent would refuse this at its start. Where one of both is not set, it has the program's default. */}}
{{- define "epitaph.check.limits" -}}
{{- $limits := .Values.config.limits | default dict }}
{{- $linger := $limits.linger | default "2s" }}
{{- $reorder := $limits.reorder | default "200ms" }}
{{- if lt (include "epitaph.nanoseconds" $linger | int64) (include "epitaph.nanoseconds" $reorder | int64) }}
{{- fail (printf "config.limits.linger is %s and config.limits.reorder is %s. Write a limits.linger that is not shorter than limits.reorder." $linger $reorder) }}
{{- end }}
{{- end }}
