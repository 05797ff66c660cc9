{{- define "epitaph.container.observer" -}}
- name: observer
  image: {{ include "epitaph.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/epitaph]
  args: [observer, --config, /etc/epitaph/config/epitaph.toml]
  {{- if or .Values.collector.headersSecret .Values.observer.extraEnv }}
  env:
    {{- with include "epitaph.env" . }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .Values.observer.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  ports:
    - {name: metrics, containerPort: 9464}
    # A port of its own for the kubelet's probes: clients of /metrics cannot delay the answers.
    - {name: health, containerPort: 9465}
  # A restart loses removals in progress, and the new process lists the whole cluster, so the probes are patient.
  startupProbe:
    httpGet: {path: /healthz, port: health}
    {{- toYaml .Values.observer.startupProbe | nindent 4 }}
  livenessProbe:
    httpGet: {path: /healthz, port: health}
    {{- toYaml .Values.observer.livenessProbe | nindent 4 }}
  readinessProbe:
    httpGet: {path: /readyz, port: health}
    {{- toYaml .Values.observer.readinessProbe | nindent 4 }}
  resources:
    {{- toYaml .Values.observer.resources | nindent 4 }}
  securityContext:
    {{- toYaml .Values.observer.securityContext | nindent 4 }}
  volumeMounts:
    {{- include "epitaph.volumeMounts" . | nindent 4 }}
    {{- with .Values.observer.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
